package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// width is the number of status calls in flight: containerd on two cores serves
	// no more, and more calls would add to its load.
	width = 4
	// hungAfter is the age at which a call no longer counts against width.
	hungAfter = 500 * time.Millisecond
)

// inspection is the result of the status calls.
type inspection struct {
	mu    sync.Mutex
	calls []ItemCall
	hung  []ItemCall
	// failed are the calls that returned an error.
	failed []ItemCall
	total  time.Duration
}

// inspect asks for the status of every sandbox and container until ctx ends. Those
// that run come first.
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
			release := sync.OnceFunc(func() { <-slots })
			defer release()
			defer time.AfterFunc(hungAfter, release).Stop()
			began := time.Now()
			err := e.call(ctx, item.Method, call)
			e.addItem(item, time.Since(began), err)
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
			answer, err := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			return malformed(err, c.GetId(), answer.GetStatus().GetId())
		}) {
			return
		}
	}
}

// running returns the items, with those that run first.
func running[T any](items []T, runs func(T) bool) []T {
	rest := slices.DeleteFunc(slices.Clone(items), runs)
	first := slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !runs(item) })
	return append(first, rest...)
}

// sandbox asks for the status of a sandbox and counts it if it has no address.
func (e *examination) sandbox(ctx context.Context, s *runtimeapi.PodSandbox) error {
	answer, err := e.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
	st := answer.GetStatus()
	err = malformed(err, s.GetId(), st.GetId())
	hostNetwork := st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if err == nil && st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && !hostNetwork && st.GetNetwork().GetIp() == "" {
		e.report.inspection.mu.Lock()
		defer e.report.inspection.mu.Unlock()
		e.report.Counts.WithoutIP++
	}
	return err
}

// addItem records the result of a status call.
func (e *examination) addItem(item ItemCall, took time.Duration, err error) {
	if errors.Is(err, errNoTime) {
		return
	}
	i := &e.report.inspection
	i.mu.Lock()
	defer i.mu.Unlock()
	e.report.Counts.Inspected++
	i.total += took
	item.Seconds = took.Seconds()
	switch {
	case hangs(err):
		i.hung = append(i.hung, item)
	case fails(err):
		item.Error = status.Convert(err).Message()
		i.failed = append(i.failed, item)
	default:
		i.calls = append(i.calls, item)
	}
}

// malformed returns the error of a status call, or an error if the answer is not that of
// the object with this id.
func malformed(err error, id, got string) error {
	switch {
	case err != nil || got == id:
		return err
	case got == "":
		return status.Error(codes.Unknown, "malformed answer: it has no status")
	}
	return status.Errorf(codes.Unknown, "malformed answer: it is the status of %s", got)
}

// slowest returns the calls that took longest, the slowest first.
func slowest(calls []ItemCall) []ItemCall {
	sorted := slices.SortedFunc(slices.Values(calls), func(a, b ItemCall) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID))
	})
	return sorted[:min(len(sorted), top)]
}

// errNoTime is the error of a call that was cancelled by the end of the examination.
var errNoTime = status.Error(codes.Canceled, "no time left")

// timings collects the durations of calls. It is safe for concurrent use.
type timings struct {
	mu    sync.Mutex
	order []string
	calls map[string]*timing
}

type timing struct {
	took         []time.Duration
	hung, failed int
	err          error
}

// call makes one call within Options.CallTimeout and records its duration. If the
// examination ends first, it returns errNoTime.
func (e *examination) call(ctx context.Context, method string, call func(context.Context) error) error {
	callCtx, cancel := context.WithTimeout(ctx, e.CallTimeout)
	defer cancel()
	began := time.Now()
	err := call(callCtx)
	if err != nil && ctx.Err() != nil {
		return errNoTime
	}
	e.calls.add(method, time.Since(began), err)
	return err
}

func (t *timings) add(method string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[method]
	if c == nil {
		c = &timing{}
		if t.calls == nil {
			t.calls = make(map[string]*timing)
		}
		t.calls[method] = c
		t.order = append(t.order, method)
	}
	c.took = append(c.took, took)
	switch {
	case hangs(err):
		c.hung++
	case fails(err):
		c.failed++
	default:
		return
	}
	if c.err == nil {
		c.err = err
	}
}

// fails reports whether a call returned an error. What was removed since the list is not
// found.
func fails(err error) bool { return err != nil && status.Code(err) != codes.NotFound }

func hangs(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

func (t *timings) summary() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := make([]Call, 0, len(t.order))
	for _, method := range t.order {
		c := t.calls[method]
		slices.Sort(c.took)
		call := Call{
			Method: method, Count: len(c.took), Hung: c.hung, Failed: c.failed,
			MedianSeconds: c.took[len(c.took)/2].Seconds(), LongestSecs: c.took[len(c.took)-1].Seconds(),
		}
		if c.err != nil {
			call.Error = status.Convert(c.err).Message()
		}
		calls = append(calls, call)
	}
	return calls
}
