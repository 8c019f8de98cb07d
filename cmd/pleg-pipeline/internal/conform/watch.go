package conform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// received is an event as a watcher got it.
type received struct {
	*runtimeapi.ContainerEventResponse
	// pod is our pod that the event is about; nil if it is not known yet.
	pod *pod
	// read is how a status call right after the event disagreed with it; empty if not.
	read string
}

func (r received) step() step {
	id := r.GetContainerId()
	sandbox := id == r.GetPodSandboxStatus().GetId() || r.pod != nil && id == r.pod.id // the status may be absent
	return step{id, sandbox, r.GetContainerEventType()}
}

// watcher receives events on a connection of its own.
type watcher struct {
	node  *node
	leave func()
	ended chan struct{} // closed when the stream has ended
	err   error         // of the stream, once it has ended

	mu     sync.Mutex
	events []received
}

// watch opens an event stream on a connection of its own. If read, it compares each
// event with the status right after it.
func (n *node) watch(ctx context.Context, read bool) (*watcher, error) {
	stream, leave, err := n.openEvents(ctx)
	if err != nil {
		return nil, err
	}
	w := &watcher{node: n, leave: leave, ended: make(chan struct{})}
	go func() { // until close
		defer close(w.ended)
		for {
			e, err := stream.Recv()
			if err != nil {
				w.err = err
				return
			}
			r := received{ContainerEventResponse: e}
			if read {
				r.read = n.readAfter(ctx, r)
			}
			w.mu.Lock()
			w.events = append(w.events, r)
			w.mu.Unlock()
		}
	}()
	return w, nil
}

type eventStream = grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]

// openEvents opens an event stream on a connection of its own. leave ends both.
func (n *node) openEvents(ctx context.Context) (stream eventStream, leave func(), _ error) {
	client, err := dial(n.opts)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	leave = func() {
		cancel()
		_ = client.Close()
	}
	stream, err = runtimeapi.NewRuntimeServiceClient(client.Conn()).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		leave()
		return nil, nil, fmt.Errorf("get container events: %w", err)
	}
	return stream, leave, nil
}

func (w *watcher) close() {
	w.leave()
	<-w.ended
}

// of returns the events of some pods.
func (w *watcher) of(pods ...*pod) (events []received) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.node.mu.Lock()
	defer w.node.mu.Unlock()
	for _, e := range w.events {
		e.pod = cmp.Or(w.node.pods[e.GetContainerId()], w.node.pods[e.GetPodSandboxStatus().GetMetadata().GetUid()])
		if slices.Contains(pods, e.pod) {
			events = append(events, e)
		}
	}
	return events
}

type watchers []*watcher

func (all watchers) close() {
	for _, w := range all {
		w.close()
	}
}

// listen opens event streams, and returns once each has received an event, or none came
// for a while: a stream may be opened long before the runtime sends events to it. There is one
// stream for each element of reads, which says whether it is read.
func (t *trial) listen(reads ...bool) (all watchers) {
	t.needEvents()
	ended := attempt(func() {
		for _, read := range reads {
			all = append(all, must(t.watch(t.ctx, read)))
		}
		p := t.runPod(nil)
		until(t.ctx, t.opts.Settle, 50*time.Millisecond, func() bool {
			t.runShorts(p, 1)
			return !slices.ContainsFunc(all, func(w *watcher) bool { return len(w.of(p)) == 0 })
		})
	})
	if ended != nil {
		all.close()
	}
	check(ended)
	return all
}

// settle returns once the watchers have every step of the pods, or nothing came for
// a while.
func (t *trial) settle(all watchers, pods ...*pod) {
	want, have, since := 0, -1, time.Now()
	for _, p := range pods {
		want += len(p.steps) * len(all)
	}
	for {
		n := 0
		for _, w := range all {
			n += len(w.of(pods...))
		}
		if n != have {
			have, since = n, time.Now()
		}
		// A little longer than needed, for duplicates.
		if quiet := time.Since(since); quiet > t.opts.Settle || quiet > t.opts.Settle/10 && n >= want {
			return
		}
		t.sleep(10 * time.Millisecond)
	}
}

// readAfter returns how a read right after an event disagrees with it. The states of CRI are
// numbers that only grow, and the kinds of events are numbered like those of containers.
func (n *node) readAfter(ctx context.Context, r received) string {
	step := r.step()
	least, state, name, err := int32(step.kind), int32(0), "", error(nil)
	if step.sandbox { // it has one state less
		var resp *runtimeapi.PodSandboxStatusResponse
		resp, err = n.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: step.id})
		least, state, name = max(0, least-1), int32(resp.GetStatus().GetState()), resp.GetStatus().GetState().String()
	} else {
		var st *runtimeapi.ContainerStatus
		st, err = n.status(ctx, step.id)
		state, name = int32(st.GetState()), st.GetState().String()
	}
	switch {
	case status.Code(err) == codes.NotFound:
		return "" // it was removed meanwhile
	case err != nil:
		return err.Error()
	case step.kind == deleted || state < least || state > int32(runtimeapi.ContainerState_CONTAINER_EXITED):
		return fmt.Sprintf("%s, but the status is %s", describe(step), name)
	}
	return ""
}

func describe(s step) string {
	what := "container"
	if s.sandbox {
		what = "sandbox"
	}
	return what + " " + s.kind.String()[len("CONTAINER_"):len(s.kind.String())-len("_EVENT")]
}

// endOfEvents returns how an event stream ends if it does at once, or nil.
func (n *node) endOfEvents(ctx context.Context) error {
	w, err := n.watch(ctx, false)
	if err != nil {
		return err
	}
	defer w.close()
	select {
	case <-w.ended:
		return w.err
	case <-time.After(n.opts.Settle / 3):
	case <-ctx.Done():
	}
	return nil
}

// needEvents ends the trial on a runtime without events.
func (t *trial) needEvents() {
	switch {
	case errors.Is(t.events, io.EOF):
		check(result{NotOffered, "the event stream ends at once"})
	case t.events != nil:
		check(result{NotOffered, status.Code(t.events).String()})
	}
}
