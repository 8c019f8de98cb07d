package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// top is the number of calls or pods that a finding names.
const top = 5

// listed is the content of the two lists.
type listed struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	// owner maps sandbox ids to sandboxes.
	owner map[string]*runtimeapi.PodSandbox
}

// list makes both list calls at once, as a relist does.
func (e *examination) list(ctx context.Context) *listed {
	l := &listed{owner: make(map[string]*runtimeapi.PodSandbox)}
	var both sync.WaitGroup
	var took [2]time.Duration
	var sizes [2]ListSize
	both.Go(func() { l.sandboxes, sizes[0], took[0] = e.listSandboxes(ctx) })
	both.Go(func() { l.containers, sizes[1], took[1] = e.listContainers(ctx) })
	both.Wait()
	e.report.Relist.ListSeconds = max(took[0], took[1]).Seconds()
	e.report.Lists = sizes[:]
	for _, s := range l.sandboxes {
		l.owner[s.GetId()] = s
	}
	e.count(l)
	return l
}

// listSandboxes lists the sandboxes, by state if they are too large for one list.
func (e *examination) listSandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, ListSize, time.Duration) {
	ask := func(filter *runtimeapi.PodSandboxFilter) (answer *runtimeapi.ListPodSandboxResponse, err error) {
		err = e.call(ctx, "ListPodSandbox", func(ctx context.Context) (err error) {
			answer, err = e.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
			return err
		})
		return answer, err
	}
	began := time.Now()
	answer, err := ask(nil)
	took := time.Since(began)
	size := ListSize{Method: "ListPodSandbox", Bytes: proto.Size(answer), LimitBytes: listLimit}
	items := answer.GetItems()
	if status.Code(err) == codes.ResourceExhausted {
		size.Portioned = true
		for state := range runtimeapi.PodSandboxState_name {
			part, _ := ask(&runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState(state)}})
			size.Bytes += proto.Size(part)
			items = append(items, part.GetItems()...)
		}
	}
	return items, size, took
}

// listContainers is listSandboxes for containers.
func (e *examination) listContainers(ctx context.Context) ([]*runtimeapi.Container, ListSize, time.Duration) {
	ask := func(filter *runtimeapi.ContainerFilter) (answer *runtimeapi.ListContainersResponse, err error) {
		err = e.call(ctx, "ListContainers", func(ctx context.Context) (err error) {
			answer, err = e.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
			return err
		})
		return answer, err
	}
	began := time.Now()
	answer, err := ask(nil)
	took := time.Since(began)
	size := ListSize{Method: "ListContainers", Bytes: proto.Size(answer), LimitBytes: listLimit}
	items := answer.GetContainers()
	if status.Code(err) == codes.ResourceExhausted {
		size.Portioned = true
		for state := range runtimeapi.ContainerState_name {
			part, _ := ask(&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(state)}})
			size.Bytes += proto.Size(part)
			items = append(items, part.GetContainers()...)
		}
	}
	return items, size, took
}

func name(s *runtimeapi.PodSandbox) string {
	return s.GetMetadata().GetNamespace() + "/" + s.GetMetadata().GetName()
}

// count fills the counts of the report, and finds the pods with the most bytes and the
// most dead containers.
func (e *examination) count(l *listed) {
	counts := &e.report.Counts
	counts.Sandboxes, counts.Containers = len(l.sandboxes), len(l.containers)
	sizes := make(map[string]*PodSize)
	dead := make(map[string]*PodDead)
	pod := func(s *runtimeapi.PodSandbox) *PodSize {
		uid := s.GetMetadata().GetUid()
		if sizes[uid] == nil {
			sizes[uid] = &PodSize{Pod: name(s), PodUID: uid}
			dead[uid] = &PodDead{Pod: name(s), PodUID: uid}
		}
		return sizes[uid]
	}
	for _, s := range l.sandboxes {
		pod(s).add(proto.Size(s), s.GetAnnotations())
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			counts.Ready++
		}
	}
	for _, c := range l.containers {
		s := l.owner[c.GetPodSandboxId()]
		pod(s).add(proto.Size(c), c.GetAnnotations())
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			counts.Running++
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			counts.Exited++
			dead[s.GetMetadata().GetUid()].Exited++
		}
	}
	counts.Pods = len(sizes)
	e.report.Largest = worst(sizes, func(p *PodSize) int { return p.Bytes })
	e.report.MostDead = worst(dead, func(p *PodDead) int { return p.Exited })
}

func (p *PodSize) add(bytes int, annotations map[string]string) {
	p.Bytes += bytes
	for k, v := range annotations {
		p.Annotations += len(k) + len(v)
	}
}

// worst returns the values with the largest numbers, the largest first, without those
// of 0.
func worst[T any](values map[string]*T, number func(*T) int) []T {
	type entry struct {
		key   string
		value *T
	}
	var all []entry
	for key, v := range values {
		if number(v) > 0 {
			all = append(all, entry{key, v})
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(number(b.value), number(a.value)), cmp.Compare(a.key, b.key))
	})
	var names []T
	for _, e := range all[:min(len(all), top)] {
		names = append(names, *e.value)
	}
	return names
}
