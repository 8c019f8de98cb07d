package view

import (
	"errors"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pod is the state of one pod.
type Pod struct {
	UID pleg.PodUID `json:"uid"`
	// Node is set for a pod of a cluster.
	Node      string `json:"node,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// State is one of [States], the worst that fits. Severity says how bad the state is.
	State    string           `json:"state"`
	Severity verdict.Severity `json:"severity,omitempty"`
	IPs      []string         `json:"ips,omitempty"`
	// Running is the number of containers that run, out of Total. Both count only the newest
	// container of each name, and no init container that has ended well or ephemeral one that has ended.
	Running int `json:"running"`
	Total   int `json:"total"`
	// Restarts is the sum of the attempts of these containers.
	Restarts uint64 `json:"restarts"`
	// Containers and Sandboxes include exited ones.
	Containers []Container `json:"containers,omitempty"`
	Sandboxes  []Sandbox   `json:"sandboxes,omitempty"`
	// Error is the error of the last inspection. The rest is then from the last inspection that
	// succeeded.
	Error string `json:"error,omitempty"`
	// Stale is true if the pod has probably changed since CurrentAsOf: its last inspection failed,
	// or its inspection in flight is overdue.
	Stale bool `json:"stale,omitempty"`
	// Uninspected is true if no inspection has succeeded yet: the rest comes from the list.
	Uninspected bool `json:"uninspected,omitempty"`
	// Inspection is the inspection in flight, if it is overdue.
	Inspection *Inspection `json:"inspection,omitempty"`
	// Finding is the verdict on these inspections, with the time of the first attempt; nil if
	// nothing is wrong with them.
	Finding *verdict.Finding `json:"finding,omitempty"`
	// CurrentAsOf is the latest time at which the pod is known to be in this
	// state; missing before its first inspection.
	CurrentAsOf time.Time `json:"currentAsOf,omitzero"`

	shared bool // another pod shares its name
}

// Inspection is an inspection in flight that takes long.
type Inspection struct {
	Since time.Time `json:"since"`
	// Hung is true if inspections that began later have ended.
	Hung bool `json:"hung"`
	// Call is the call to the runtime that it waits for, Container the container
	// that the call is about; both empty if not known.
	Call      string `json:"call,omitempty"`
	Container string `json:"container,omitempty"`
}

// NewPod returns the view of a pod in a cache.
func NewPod(e cache.Entry) Pod {
	p := Pod{UID: e.UID, CurrentAsOf: e.LastAsOf}
	status := e.Last
	if p.Uninspected = status == nil; p.Uninspected {
		status = asListed(e.Listed)
	}
	// A pod that was never inspected shows no error of an inspection.
	if e.Err != nil && !errors.Is(e.Err, cache.ErrNotInspected) {
		p.Error = e.Err.Error()
		p.Stale = !p.Uninspected
	}
	if status != nil {
		p.fill(status)
	}
	if p.Error != "" {
		p.Finding = new(verdict.Failed(pleg.Failed{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Err: e.Err}, time.Time{}))
	}
	p.judge()
	return p
}

// asListed returns the listed facts of a pod as a status; nil for nil.
func asListed(pod *pleg.Pod) *pleg.PodStatus {
	if pod == nil {
		return nil
	}
	status := &pleg.PodStatus{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	for _, c := range pod.Containers {
		status.Containers = append(status.Containers, &pleg.ContainerStatus{
			ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: c.State, CreatedAt: c.CreatedAt,
		})
	}
	for _, s := range pod.Sandboxes {
		status.Sandboxes = append(status.Sandboxes, &pleg.SandboxStatus{
			ID: s.ID, Attempt: s.Attempt, Ready: s.State == pleg.StateRunning, CreatedAt: s.CreatedAt, Labels: pod.Labels,
		})
	}
	return status
}

func (p *Pod) fill(status *pleg.PodStatus) {
	p.Name, p.Namespace, p.IPs = status.Name, status.Namespace, status.IPs
	for _, c := range status.Containers {
		p.Containers = append(p.Containers, newContainer(c))
	}
	for _, s := range status.Sandboxes {
		p.Sandboxes = append(p.Sandboxes, newSandbox(s))
	}
	for _, c := range p.Newest() {
		p.Total++
		p.Restarts += uint64(c.Attempt)
		if c.State == running {
			p.Running++
		}
	}
}

// Pods returns the views of pods, in their order, with the inspections in the status of their
// pipeline. Pods that only the status names come last.
func Pods(entries []cache.Entry, now pleg.Status) []Pod {
	pods := make([]Pod, 0, len(entries))
	index := make(map[pleg.PodUID]int, len(entries))
	for n, e := range entries {
		pods = append(pods, NewPod(e))
		index[e.UID] = n
	}
	find := func(uid pleg.PodUID, namespace, name string) *Pod {
		n, ok := index[uid]
		if !ok {
			n = len(pods)
			index[uid] = n
			pods = append(pods, NewPod(cache.Entry{UID: uid}))
		}
		p := &pods[n]
		if p.Name == "" {
			p.Namespace, p.Name = namespace, name
		}
		return p
	}
	for _, i := range now.Overdue {
		p := find(i.UID, i.Namespace, i.Name)
		p.Inspection = &Inspection{Since: i.Started, Hung: i.Hung}
		if i.Call != nil {
			p.Inspection.Call, p.Inspection.Container = i.Call.Method, i.Call.Container
		}
	}
	for _, q := range now.Quarantined {
		find(q.UID, q.Namespace, q.Name)
	}
	for uid, f := range verdict.Pods(now) {
		if n, ok := index[uid]; ok {
			pods[n].SetFinding(f)
		}
	}
	markShared(pods)
	return pods
}

// at returns nil for the zero time, which would be the year 1 in JSON.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// newer reports whether the first of two containers or sandboxes is newer: it runs, its attempt is
// greater, or it was created later.
func newer(runs, otherRuns bool, attempt, otherAttempt uint32, created, otherCreated *time.Time) bool {
	switch {
	case runs != otherRuns:
		return runs
	case attempt != otherAttempt:
		return attempt > otherAttempt
	}
	return created != nil && (otherCreated == nil || created.After(*otherCreated))
}

// Wanted reports whether a filter selects the pod.
func (p *Pod) Wanted(f *filter.Filter) bool {
	return f.WantsPod(p.Namespace, p.UID) && f.WantsLabels(p.Labels())
}

// Labels returns the labels of the pod, which its newest sandbox carries.
func (p *Pod) Labels() map[string]string {
	if s := p.sandbox(); s != nil {
		return s.Labels
	}
	return nil
}

// CreatedAt returns the time at which the oldest sandbox or container that is left was created;
// zero if that is not known.
func (p *Pod) CreatedAt() time.Time {
	var oldest time.Time
	add := func(at *time.Time) {
		if at != nil && (oldest.IsZero() || at.Before(oldest)) {
			oldest = *at
		}
	}
	for _, s := range p.Sandboxes {
		add(s.CreatedAt)
	}
	for _, c := range p.Containers {
		add(c.CreatedAt)
	}
	return oldest
}

// sandbox returns the newest sandbox, or nil.
func (p *Pod) sandbox() *Sandbox {
	var newest *Sandbox
	for i := range p.Sandboxes {
		s := &p.Sandboxes[i]
		if newest == nil || newer(s.State == Ready, newest.State == Ready, s.Attempt, newest.Attempt, s.CreatedAt, newest.CreatedAt) {
			newest = s
		}
	}
	return newest
}
