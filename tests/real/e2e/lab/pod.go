//go:build linux

package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSpec describes a pod sandbox.
type PodSpec struct {
	Name string
	// Namespace is the Kubernetes namespace. If empty, "default".
	Namespace string
	// UID is the pod's uid. If empty, a random UID.
	UID string
	// Attempt is the number of earlier sandboxes of the pod.
	Attempt uint32
	// HostNetwork makes a pod without its own address, which is faster.
	HostNetwork bool
	// Foreign leaves out the kubelet's labels, as other CRI clients do.
	Foreign     bool
	Annotations map[string]string
}

// Pod is a sandbox of the lab.
type Pod struct {
	UID, Name, Namespace string
	SandboxID            string
	Attempt              uint32

	foreign bool
	config  *runtimeapi.PodSandboxConfig

	mu         sync.Mutex
	containers []*Container
}

// Containers returns the pod's containers in the order of their creation, without removed
// containers.
func (p *Pod) Containers() []*Container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.containers)
}

func (p *Pod) entry(step Step, began time.Time) Entry {
	return Entry{
		Step: step, PodUID: p.UID, PodName: p.Name, PodNamespace: p.Namespace,
		ContainerID: p.SandboxID, Attempt: p.Attempt, Sandbox: true, Began: began,
	}
}

// RunPod creates a pod sandbox and returns once it is ready.
func (l *Lab) RunPod(ctx context.Context, spec PodSpec) (*Pod, error) {
	spec.Namespace = cmp.Or(spec.Namespace, "default")
	spec.UID = cmp.Or(spec.UID, rand.Text())
	p := &Pod{
		UID: spec.UID, Name: spec.Name, Namespace: spec.Namespace, Attempt: spec.Attempt,
		foreign: spec.Foreign, config: l.sandboxConfig(spec),
	}
	began := time.Now()
	resp, err := l.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run pod %s: %w", spec.Name, err), l.addFailed(ctx, p, began))
	}
	p.SandboxID = resp.GetPodSandboxId()
	e := p.entry(Started, began)
	status, err := l.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.SandboxID})
	e.IP = status.GetStatus().GetNetwork().GetIp()
	l.history.add(e)
	return p, err
}

// addFailed adds a sandbox to the history that the runtime failed to start and
// still lists: it was never ready.
func (l *Lab) addFailed(ctx context.Context, p *Pod, began time.Time) error {
	resp, err := l.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list the sandboxes of failed pod %s: %w", p.Name, err)
	}
	for _, s := range resp.GetItems() {
		if s.GetMetadata().GetUid() == p.UID && s.GetMetadata().GetAttempt() == p.Attempt {
			p.SandboxID = s.GetId()
			l.history.add(p.entry(Died, began))
		}
	}
	return nil
}

// RunPods creates pods, some at the same time, and returns them in the order of
// specs. After an error some may exist; Stop removes them.
func (l *Lab) RunPods(ctx context.Context, specs []PodSpec) ([]*Pod, error) {
	pods := make([]*Pod, len(specs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(podsAtOnce)
	for i, spec := range specs {
		g.Go(func() (err error) {
			pods[i], err = l.RunPod(ctx, spec)
			return err
		})
	}
	return pods, g.Wait()
}

func (l *Lab) sandboxConfig(spec PodSpec) *runtimeapi.PodSandboxConfig {
	labels := make(map[string]string)
	if !spec.Foreign {
		labels["io.kubernetes.pod.name"] = spec.Name
		labels["io.kubernetes.pod.namespace"] = spec.Namespace
		labels["io.kubernetes.pod.uid"] = spec.UID
	}
	network, hostname := runtimeapi.NamespaceMode_POD, spec.Name
	if spec.HostNetwork {
		network, hostname = runtimeapi.NamespaceMode_NODE, "" // the host provides one
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: spec.Name, Uid: spec.UID, Namespace: spec.Namespace, Attempt: spec.Attempt},
		Hostname:    hostname,
		Labels:      labels,
		Annotations: spec.Annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			// The lab finds its processes by this cgroup.
			CgroupParent: l.CgroupParent(),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				// Like the kubelet: each container gets its own pid namespace.
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: network, Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// KillSandbox kills the sandbox's process and returns once the sandbox is not
// ready. Its containers keep running. In CRI-O there is no process of a sandbox.
func (l *Lab) KillSandbox(ctx context.Context, p *Pod) error {
	began := time.Now()
	if err := l.killCgroup(ctx, p.SandboxID); err != nil {
		return err
	}
	return l.awaitNotReady(ctx, p, began)
}

// StopPod stops the sandbox. containerd kills its running containers; CRI-O stops
// them with a grace period.
func (l *Lab) StopPod(ctx context.Context, p *Pod) error {
	began := time.Now()
	running := l.history.Last(p.SandboxID) == Started
	if _, err := l.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.SandboxID}); err != nil {
		return fmt.Errorf("stop pod %s: %w", p.Name, err)
	}
	if err := l.awaitAllDied(ctx, p, began, l.engine.stopped); err != nil {
		return err
	}
	if running {
		l.history.add(p.entry(Died, began))
	}
	return nil
}

// awaitAllDied adds the ends of the containers that still ran to the history.
func (l *Lab) awaitAllDied(ctx context.Context, p *Pod, began time.Time, want end) error {
	for _, c := range p.Containers() {
		if l.history.Last(c.ID) == Started {
			c.expectEnd(want)
			if err := l.awaitDied(ctx, c, began); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemovePod stops the sandbox if it is ready, and removes it and its containers.
func (l *Lab) RemovePod(ctx context.Context, p *Pod) error {
	if err := l.StopPod(ctx, p); err != nil {
		return err
	}
	began := time.Now()
	if _, err := l.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.SandboxID}); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Name, err)
	}
	for _, c := range p.Containers() {
		l.removeFromPod(c)
		l.history.add(c.entry(Removed, began))
	}
	l.history.add(p.entry(Removed, began))
	return nil
}
