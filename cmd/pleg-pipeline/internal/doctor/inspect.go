package doctor

import (
	"cmp"
	"context"
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

// madeCall is a call with its result. Only a status call has an ID.
type madeCall struct {
	ItemCall
	err error
}

// hangs reports whether a call did not return in time.
func (c *madeCall) hangs() bool { return status.Code(c.err) == codes.DeadlineExceeded }

// fails reports whether a call returned an error. What was removed since the list is not
// found.
func (c *madeCall) fails() bool {
	return c.err != nil && !c.hangs() && status.Code(c.err) != codes.NotFound
}

// call makes one call within Options.CallTimeout and records its result, unless the
// examination ends first.
func (e *examination) call(ctx context.Context, item ItemCall, call func(context.Context) error) error {
	callCtx, cancel := context.WithTimeout(ctx, e.CallTimeout)
	defer cancel()
	began := time.Now()
	err := call(callCtx)
	deadline, bounded := ctx.Deadline() // ctx itself may end a little later
	if err == nil || ctx.Err() == nil && (!bounded || time.Now().Before(deadline)) {
		e.record(item, time.Since(began), err)
	}
	return err
}

func (e *examination) record(item ItemCall, took time.Duration, err error) {
	item.Seconds, item.began = took.Seconds(), time.Now().Add(-took)
	if err != nil {
		item.Error = status.Convert(err).Message()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, madeCall{item, err})
}

// summarize fills in what the report says about the calls.
func (e *examination) summarize() {
	r := e.report
	r.Calls = []Call{}
	var took time.Duration
	for _, c := range e.calls {
		if !slices.ContainsFunc(r.Calls, func(s Call) bool { return s.Method == c.Method }) {
			r.Calls = append(r.Calls, e.summary(c.Method))
		}
		if c.ID == "" {
			continue
		}
		r.Counts.Inspected++
		took += time.Duration(c.Seconds * float64(time.Second))
		switch {
		case c.hangs():
			c.Error = ""
			r.Hung = append(r.Hung, c.ItemCall)
		case c.fails():
			r.Failed = append(r.Failed, c.ItemCall)
		default:
			c.Error = ""
			r.Slowest = append(r.Slowest, c.ItemCall)
		}
	}
	slices.SortFunc(r.Hung, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(r.Slowest, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.ID, b.ID)) })
	r.Slowest = r.Slowest[:min(len(r.Slowest), top)]
	// A serial relist takes as long as the lists and the calls that were made, for all items.
	r.Relist.OneByOneSeconds = r.Relist.ListSeconds
	if n := r.Counts.Inspected; n > 0 {
		r.Relist.OneByOneSeconds += took.Seconds() / float64(n) * float64(r.Counts.Sandboxes+r.Counts.Containers)
	}
}

// summary summarizes the calls of one method.
func (e *examination) summary(method string) Call {
	s := Call{Method: method}
	var took []float64
	for _, c := range e.calls {
		if c.Method != method {
			continue
		}
		took = append(took, c.Seconds)
		switch {
		case c.hangs():
			s.Hung++
		case c.fails():
			s.Failed++
		default:
			continue
		}
		s.Error = cmp.Or(s.Error, c.Error)
	}
	slices.Sort(took)
	s.Count, s.MedianSeconds, s.LongestSecs = len(took), took[len(took)/2], took[len(took)-1]
	return s
}

// inspection is a status call to make.
type inspection struct {
	ItemCall
	call func(context.Context) error
}

// inspections returns the status calls of all sandboxes and containers, of what runs first.
func (e *examination) inspections(l *listed) []inspection {
	var running, stopped []inspection
	add := func(runs bool, s *runtimeapi.PodSandbox, item ItemCall, call func(context.Context) error) {
		item.Pod, item.PodUID = name(s), s.GetMetadata().GetUid()
		if runs {
			running = append(running, inspection{item, call})
		} else {
			stopped = append(stopped, inspection{item, call})
		}
	}
	for _, s := range l.sandboxes {
		add(s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, s, ItemCall{Method: "PodSandboxStatus", ID: s.GetId()},
			func(ctx context.Context) error { return e.sandbox(ctx, s) })
	}
	for _, c := range l.containers {
		item := ItemCall{Method: "ContainerStatus", Container: c.GetMetadata().GetName(), ID: c.GetId()}
		add(c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, l.owner[c.GetPodSandboxId()], item, func(ctx context.Context) error {
			answer, err := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			return malformed(err, c.GetId(), answer.GetStatus().GetId())
		})
	}
	return append(running, stopped...)
}

// inspect asks for the status of every sandbox and container until ctx ends.
func (e *examination) inspect(ctx context.Context, l *listed) {
	places := make(chan struct{}, width)
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, i := range e.inspections(l) {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		calls.Go(func() {
			release := sync.OnceFunc(func() { <-places })
			defer release()
			defer time.AfterFunc(hungAfter, release).Stop()
			_ = e.call(ctx, i.ItemCall, i.call)
		})
	}
}

// sandbox asks for the status of a sandbox and counts it if it has no address.
func (e *examination) sandbox(ctx context.Context, s *runtimeapi.PodSandbox) error {
	answer, err := e.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
	st := answer.GetStatus()
	err = malformed(err, s.GetId(), st.GetId())
	hostNetwork := st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if err == nil && st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && !hostNetwork && st.GetNetwork().GetIp() == "" {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report.Counts.WithoutIP++
	}
	return err
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
