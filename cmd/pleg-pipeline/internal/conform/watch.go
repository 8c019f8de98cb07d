package conform

import (
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
	// sandbox: the event is that of a sandbox of ours, although its status may be absent.
	sandbox bool
	// read is how a status call right after the event disagreed with it; empty if not.
	read string
}

func (r received) step() step {
	id := r.GetContainerId()
	return step{id, r.sandbox || id == r.GetPodSandboxStatus().GetId(), r.GetContainerEventType()}
}

// watcher receives events on a connection of its own.
type watcher struct {
	leave func()
	ended chan struct{} // closed when the stream has ended

	mu     sync.Mutex
	events []received
	err    error // of the stream
}

// watch opens an event stream on a connection of its own. If read, it compares each
// event with the status right after it.
func (n *node) watch(ctx context.Context, read bool) (*watcher, error) {
	stream, leave, err := n.openEvents(ctx)
	if err != nil {
		return nil, err
	}
	w := &watcher{leave: leave, ended: make(chan struct{})}
	go func() { // until close
		defer close(w.ended)
		for {
			e, err := stream.Recv()
			if err != nil {
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
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
func (w *watcher) of(pods ...*pod) []received {
	uids, sandboxes := make(map[string]bool), make(map[string]bool)
	for _, p := range pods {
		uids[p.uid], sandboxes[p.id] = true, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []received
	for _, e := range w.events {
		if uids[e.GetPodSandboxStatus().GetMetadata().GetUid()] || uids[podOf(e, pods)] {
			e.sandbox = sandboxes[e.GetContainerId()]
			events = append(events, e)
		}
	}
	return events
}

// podOf returns the uid of the pod that has the container of an event, whose sandbox
// status may be absent.
func podOf(e received, pods []*pod) string {
	for _, p := range pods {
		for _, s := range p.steps {
			if s.id == e.GetContainerId() {
				return p.uid
			}
		}
	}
	return ""
}

// listen opens event streams, and returns once each has received an event, or none came
// for a while: a stream may be opened long before the runtime sends events to it. For each
// it is given whether it reads, as watch does.
func (s *suite) listen(ctx context.Context, reads ...bool) (watchers []*watcher, closeAll func(), err error) {
	var open []*watcher
	closeAll = func() {
		for _, w := range open {
			w.close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	for _, read := range reads {
		w, err := s.node.watch(ctx, read)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, w)
	}
	p, err := s.node.runPod(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	silent := func(w *watcher) bool { return len(w.of(p)) == 0 }
	for deadline := time.Now().Add(s.opts.Settle); slices.ContainsFunc(open, silent) && time.Now().Before(deadline); {
		if err := s.node.runShort(ctx, p); err != nil {
			return nil, nil, err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
	return open, closeAll, nil
}

// settle returns once the watchers have every step of the pods, or nothing came for
// a while.
func (s *suite) settle(ctx context.Context, pods []*pod, watchers ...*watcher) error {
	want := 0
	for _, p := range pods {
		want += len(p.steps)
	}
	have := func() (n int) {
		for _, w := range watchers {
			n += len(w.of(pods...))
		}
		return n
	}
	last, since := -1, time.Now()
	for {
		n := have()
		if n != last {
			last, since = n, time.Now()
		}
		// A little longer than needed, for duplicates.
		if quiet := time.Since(since); quiet > s.opts.Settle || quiet > s.opts.Settle/10 && n >= want*len(watchers) {
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
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

// offersEvents returns an error if the event stream ends at once. It asks once.
func (s *suite) offersEvents(ctx context.Context) error {
	if !s.probed {
		s.probed = true
		w, err := s.node.watch(ctx, false)
		if err != nil {
			return err
		}
		select {
		case <-w.ended:
			s.eventsErr = w.err
		case <-time.After(s.opts.Settle / 3):
		case <-ctx.Done():
		}
		w.close()
	}
	switch {
	case s.eventsErr == nil:
		return nil
	case errors.Is(s.eventsErr, io.EOF):
		return fmt.Errorf("%w: the event stream ends at once", errNotOffered)
	default:
		return fmt.Errorf("%w: %v", errNotOffered, status.Code(s.eventsErr))
	}
}
