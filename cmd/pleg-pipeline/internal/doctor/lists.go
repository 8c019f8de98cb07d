package doctor

import (
	"cmp"
	"context"
	"maps"
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
	e.report.Lists = []ListSize{{Method: "ListPodSandbox", LimitBytes: listLimit}, {Method: "ListContainers", LimitBytes: listLimit}}
	var both sync.WaitGroup
	var took [2]time.Duration
	both.Go(func() {
		took[0] = e.listInPortions(ctx, &e.report.Lists[0], runtimeapi.PodSandboxState_name, func(ctx context.Context, state *int32) (proto.Message, error) {
			request := &runtimeapi.ListPodSandboxRequest{}
			if state != nil {
				request.Filter = &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState(*state)}}
			}
			answer, err := e.runtime.ListPodSandbox(ctx, request)
			l.sandboxes = append(l.sandboxes, answer.GetItems()...)
			return answer, malformedList(err, answer.GetItems(), func(s *runtimeapi.PodSandbox) bool { return s.GetMetadata() == nil })
		})
	})
	both.Go(func() {
		took[1] = e.listInPortions(ctx, &e.report.Lists[1], runtimeapi.ContainerState_name, func(ctx context.Context, state *int32) (proto.Message, error) {
			request := &runtimeapi.ListContainersRequest{}
			if state != nil {
				request.Filter = &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(*state)}}
			}
			answer, err := e.runtime.ListContainers(ctx, request)
			l.containers = append(l.containers, answer.GetContainers()...)
			return answer, malformedList(err, answer.GetContainers(), func(c *runtimeapi.Container) bool { return c.GetMetadata() == nil })
		})
	})
	both.Wait()
	e.report.Relist.ListSeconds = max(took[0], took[1]).Seconds()
	for _, s := range l.sandboxes {
		l.owner[s.GetId()] = s
	}
	e.count(l)
	return l
}

// listInPortions makes a list call, and one for each state if the list is too large for
// one answer. It returns how long the first call took.
func (e *examination) listInPortions(
	ctx context.Context, size *ListSize, states map[int32]string, list func(context.Context, *int32) (proto.Message, error),
) time.Duration {
	ask := func(state *int32) error {
		return e.call(ctx, ItemCall{Method: size.Method}, func(ctx context.Context) error {
			answer, err := list(ctx, state)
			size.Bytes += proto.Size(answer)
			return err
		})
	}
	began := time.Now()
	err := ask(nil)
	took := time.Since(began)
	if status.Code(err) == codes.ResourceExhausted {
		size.Portioned = true
		for state := range states {
			_ = ask(&state)
		}
	}
	return took
}

// malformedList returns the error of a list call, or an error if items are bad.
func malformedList[T any](err error, items []T, bad func(T) bool) error {
	good := slices.DeleteFunc(slices.Clone(items), bad)
	if err != nil || len(good) == len(items) {
		return err
	}
	return status.Errorf(codes.Unknown, "malformed answer: %d of %d items have no metadata", len(items)-len(good), len(items))
}

func name(s *runtimeapi.PodSandbox) string {
	return s.GetMetadata().GetNamespace() + "/" + s.GetMetadata().GetName()
}

// count fills the counts of the report, and finds the pods with the most bytes and the
// most dead containers.
func (e *examination) count(l *listed) {
	counts := &e.report.Counts
	counts.Sandboxes, counts.Containers = len(l.sandboxes), len(l.containers)
	sizes, dead := make(map[string]PodSize), make(map[string]PodDead)
	add := func(s *runtimeapi.PodSandbox, bytes int, annotations map[string]string, exited int) {
		uid := s.GetMetadata().GetUid()
		p := sizes[uid]
		for k, v := range annotations {
			p.Annotations += len(k) + len(v)
		}
		sizes[uid] = PodSize{name(s), uid, p.Bytes + bytes, p.Annotations}
		dead[uid] = PodDead{name(s), uid, dead[uid].Exited + exited}
	}
	for _, s := range l.sandboxes {
		add(s, proto.Size(s), s.GetAnnotations(), 0)
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			counts.Ready++
		}
	}
	for _, c := range l.containers {
		exited := 0
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			counts.Running++
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			exited = 1
		}
		counts.Exited += exited
		add(l.owner[c.GetPodSandboxId()], proto.Size(c), c.GetAnnotations(), exited)
	}
	counts.Pods = len(sizes)
	e.report.Largest = largest(sizes, func(p PodSize) int { return p.Bytes })
	e.report.MostDead = largest(dead, func(p PodDead) int { return p.Exited })
}

// largest returns the values with the largest numbers, the largest first, without those
// of 0.
func largest[T any](values map[string]T, number func(T) int) (all []T) {
	keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(number(values[b]), number(values[a])), cmp.Compare(a, b))
	})
	for _, key := range keys[:min(len(keys), top)] {
		if number(values[key]) > 0 {
			all = append(all, values[key])
		}
	}
	return all
}
