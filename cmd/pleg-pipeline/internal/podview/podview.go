// Package podview is a pod as the program shows it, over HTTP and on the command
// line. Its JSON form is an output of the program.
package podview

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podselector"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pod is the state of one pod.
type Pod struct {
	UID pleg.PodUID `json:"uid"`
	// Node is set for a pod of a cluster.
	Node      string `json:"node,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// State is the state of the newest sandbox: ready or notready, or unknown
	// if there is none or the last inspection failed.
	State string   `json:"state"`
	IPs   []string `json:"ips,omitempty"`
	// Running is the number of containers that run, out of Total. Both count
	// only the newest container of each name.
	Running int `json:"running"`
	Total   int `json:"total"`
	// Restarts is the sum of the attempts of these containers.
	Restarts uint32 `json:"restarts"`
	// Containers and Sandboxes include those that exited.
	Containers []Container `json:"containers,omitempty"`
	Sandboxes  []Sandbox   `json:"sandboxes,omitempty"`
	// Error is the error of the last inspection. The pod then has no status.
	Error string `json:"error,omitempty"`
	// LastEvent is the newest event of the pod. Only the command line sets it.
	LastEvent *pleg.Event `json:"lastEvent,omitempty"`
	// CurrentAsOf is the latest time at which the pod is known to be in this
	// state.
	CurrentAsOf time.Time `json:"currentAsOf"`
}

// Container is one container of a pod.
type Container struct {
	ID      pleg.ContainerID `json:"id"`
	Name    string           `json:"name"`
	Attempt uint32           `json:"attempt"`
	State   string           `json:"state"`
	// ExitCode, Reason and Message are set if the container has exited.
	ExitCode   *int32     `json:"exitCode,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	Image      string     `json:"image,omitempty"`
	ImageRef   string     `json:"imageRef,omitempty"`
	CreatedAt  *time.Time `json:"createdAt,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// Sandbox is one sandbox of a pod.
type Sandbox struct {
	ID          pleg.ContainerID  `json:"id"`
	Attempt     uint32            `json:"attempt"`
	State       string            `json:"state"`
	IPs         []string          `json:"ips,omitempty"`
	HostNetwork bool              `json:"hostNetwork,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	CreatedAt   *time.Time        `json:"createdAt,omitempty"`
}

// The states of a sandbox and its pod.
const (
	Ready    = "ready"
	NotReady = "notready"
	Unknown  = "unknown"
)

// New returns the view of a pod. If the last inspection failed, status is nil and
// err is its error.
func New(uid pleg.PodUID, status *pleg.PodStatus, err error, currentAsOf time.Time) Pod {
	p := Pod{UID: uid, State: Unknown, CurrentAsOf: currentAsOf}
	if err != nil {
		p.Error = err.Error()
	}
	if status == nil {
		return p
	}
	p.Name, p.Namespace, p.IPs = status.Name, status.Namespace, status.IPs
	for _, c := range status.Containers {
		p.Containers = append(p.Containers, newContainer(c))
	}
	for _, s := range status.Sandboxes {
		p.Sandboxes = append(p.Sandboxes, newSandbox(s))
	}
	for _, c := range p.Newest() {
		p.Total++
		p.Restarts += c.Attempt
		if c.State == pleg.StateRunning.String() {
			p.Running++
		}
	}
	if s := p.sandbox(); s != nil {
		p.State = s.State
	}
	return p
}

func newContainer(c *pleg.ContainerStatus) Container {
	v := Container{
		ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: c.State.String(),
		Image: c.Image, ImageRef: c.ImageRef,
		CreatedAt: at(c.CreatedAt), StartedAt: at(c.StartedAt), FinishedAt: at(c.FinishedAt),
	}
	if c.State == pleg.StateExited {
		v.ExitCode, v.Reason, v.Message = &c.ExitCode, c.Reason, c.Message
	}
	return v
}

func newSandbox(s *pleg.SandboxStatus) Sandbox {
	state := NotReady
	if s.Ready {
		state = Ready
	}
	return Sandbox{
		ID: s.ID, Attempt: s.Attempt, State: state, IPs: s.IPs, HostNetwork: s.HostNetwork,
		Labels: s.Labels, CreatedAt: at(s.CreatedAt),
	}
}

// at returns nil for the zero time, which would be the year 1 in JSON.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Newest returns the newest container of each name, in the order of p.
func (p *Pod) Newest() []Container {
	index := make(map[string]int)
	var newest []Container
	for _, c := range p.Containers {
		i, ok := index[c.Name]
		switch {
		case !ok:
			index[c.Name] = len(newest)
			newest = append(newest, c)
		case c.Attempt > newest[i].Attempt:
			newest[i] = c
		}
	}
	return newest
}

// Labels returns the labels of the pod, which its newest sandbox carries.
func (p *Pod) Labels() map[string]string {
	if s := p.sandbox(); s != nil {
		return s.Labels
	}
	return nil
}

// sandbox returns the newest sandbox, or nil.
func (p *Pod) sandbox() *Sandbox {
	var newest *Sandbox
	for i := range p.Sandboxes {
		if s := &p.Sandboxes[i]; newest == nil || s.Attempt > newest.Attempt {
			newest = s
		}
	}
	return newest
}

// Filter selects pods. The zero value selects all.
type Filter struct {
	// Namespaces are the selected namespaces. If empty, all.
	Namespaces []string
	selector   labels.Selector
}

// Select sets a Kubernetes label selector that the labels of a pod must match. An
// empty one matches all pods. The error says what is wrong with the selector.
func (f *Filter) Select(selector string) (err error) {
	f.selector, err = podselector.Parse(selector)
	return err
}

// Wants reports whether the filter selects the pod. A pod whose inspection failed
// has neither namespace nor labels, so only a filter for all pods selects it.
func (f *Filter) Wants(p *Pod) bool {
	if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, p.Namespace) {
		return false
	}
	return f.selector == nil || f.selector.Matches(labels.Set(p.Labels()))
}

// List returns the views of all pods in a cache, sorted by UID.
func List(c *cache.Cache) []Pod {
	entries := c.List()
	pods := make([]Pod, 0, len(entries))
	for _, e := range entries {
		pods = append(pods, New(e.UID, e.Status, e.Err, e.CurrentAsOf))
	}
	return pods
}
