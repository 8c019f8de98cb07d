package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// width is how many status calls are made at once: containerd serves no more
	// on two cores, and a doctor does not load the patient.
	width = 4
	// hungAfter is the age at which a call no longer keeps the next from being
	// made.
	hungAfter = 500 * time.Millisecond
)

// inspection is what the status calls have shown.
type inspection struct {
	mu    sync.Mutex
	calls []ItemCall
	hung  []ItemCall
	total time.Duration
}

// inspect asks for the status of every sandbox and container, what runs first,
// while there is time.
func (e *examination) inspect(ctx context.Context, l *listed) {
	slots := make(chan struct{}, width)
	var calls sync.WaitGroup
	ask := func(item ItemCall, call func(context.Context) error) bool {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		calls.Go(func() {
			giveBack := sync.OnceFunc(func() { <-slots })
			defer giveBack()
			defer time.AfterFunc(hungAfter, giveBack).Stop()
			began := time.Now()
			err := e.call(ctx, item.Method, call)
			e.note(item, time.Since(began), err)
		})
		return true
	}
	defer calls.Wait()
	for _, s := range running(l.sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY }) {
		item := ItemCall{Method: "PodSandboxStatus", Pod: name(s), PodUID: s.GetMetadata().GetUid(), ID: s.GetId()}
		if !ask(item, func(ctx context.Context) error { return e.sandbox(ctx, s) }) {
			return
		}
	}
	for _, c := range running(l.containers, func(c *runtimeapi.Container) bool { return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING }) {
		s := l.owner[c.GetPodSandboxId()]
		item := ItemCall{Method: "ContainerStatus", Pod: name(s), PodUID: s.GetMetadata().GetUid(), Container: c.GetMetadata().GetName(), ID: c.GetId()}
		if !ask(item, func(ctx context.Context) error {
			_, err := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			return err
		}) {
			return
		}
	}
}

// running returns the items, those that run first.
func running[T any](items []T, runs func(T) bool) []T {
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b T) int {
		switch {
		case runs(a) == runs(b):
			return 0
		case runs(a):
			return -1
		default:
			return 1
		}
	})
	return sorted
}

func (e *examination) sandbox(ctx context.Context, s *runtimeapi.PodSandbox) error {
	answer, err := e.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
	st := answer.GetStatus()
	hostNetwork := st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if err == nil && st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && !hostNetwork && st.GetNetwork().GetIp() == "" {
		e.report.inspection.mu.Lock()
		defer e.report.inspection.mu.Unlock()
		e.report.Counts.WithoutIP++
	}
	return err
}

func (e *examination) note(item ItemCall, took time.Duration, err error) {
	if errors.Is(err, errCut) {
		return
	}
	i := &e.report.inspection
	i.mu.Lock()
	defer i.mu.Unlock()
	e.report.Counts.Inspected++
	i.total += took
	item.Seconds = took.Seconds()
	if hangs(err) {
		i.hung = append(i.hung, item)
	} else {
		i.calls = append(i.calls, item)
	}
}

// slowest returns the calls that took longest.
func slowest(calls []ItemCall) []ItemCall {
	sorted := slices.Clone(calls)
	slices.SortFunc(sorted, func(a, b ItemCall) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID))
	})
	return sorted[:min(len(sorted), top)]
}
