package plegtest

import (
	"context"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// watcher is one open event stream.
type watcher struct {
	hints  chan pleg.Hint
	end    chan error    // of capacity 1
	closed chan struct{} // once WatchEvents has returned
}

// SetWatchFault sets the fault of opening an event stream; nil ends it. A runtime
// without CRI events is Fail([pleg.ErrNoEvents]).
func (r *Runtime) SetWatchFault(f Fault) {
	r.locked(func() { r.watchFault = f })
}

// WatchEvents implements [pleg.EventWatcher].
func (r *Runtime) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	w := &watcher{hints: make(chan pleg.Hint), end: make(chan error, 1), closed: make(chan struct{})}
	defer close(w.closed)
	var fault Fault
	r.locked(func() { fault = r.watchFault })
	if err := happen(ctx, fault); err != nil {
		return err
	}
	r.locked(func() { r.watchers = append(r.watchers, w) })
	defer r.locked(func() {
		r.watchers = slices.DeleteFunc(r.watchers, func(other *watcher) bool { return other == w })
	})
	opened()
	for {
		select {
		case h := <-w.hints:
			hint(h)
		case err := <-w.end:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Runtime) open() []*watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.watchers)
}

// EndWatches ends all open event streams with err, which must not be nil. It does not wait until
// they have ended.
func (r *Runtime) EndWatches(err error) {
	for _, w := range r.open() {
		select {
		case w.end <- err:
		default: // the stream has already ended
		}
	}
}

// Announce sends a CRI event with the present state of a container or sandbox, or with Removed if
// the pod does not contain it. The event of a container that has exited carries its status.
// Announce blocks as [Runtime.AnnounceHint] does.
func (r *Runtime) Announce(uid pleg.PodUID, id pleg.ContainerID) {
	r.AnnounceHint(r.hint(uid, id))
}

// AnnounceHint sends a CRI event, even if it is malformed. It blocks until every open event stream
// got the event. Without an open stream, the event is lost.
func (r *Runtime) AnnounceHint(h pleg.Hint) {
	for _, w := range r.open() {
		select {
		case w.hints <- h:
		case <-w.closed:
		}
	}
}

func (r *Runtime) hint(uid pleg.PodUID, id pleg.ContainerID) pleg.Hint {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := pleg.Hint{UID: uid, Container: id, State: pleg.StateExited, Removed: true}
	i := r.index(uid)
	if i < 0 {
		return h
	}
	pod := r.pods[i]
	h.PodName, h.PodNamespace = pod.Name, pod.Namespace
	for _, c := range pod.Containers {
		if c.ID == id {
			h.Sandbox, h.State, h.Removed, h.Name, h.Attempt = c.SandboxID, c.State, false, c.Name, c.Attempt
		}
	}
	for _, s := range pod.Sandboxes {
		if s.ID == id {
			h.Sandbox, h.State, h.Removed, h.Name, h.Attempt = s.ID, s.State, false, s.Name, s.Attempt
		}
	}
	if st := r.statusOf(pod).Container(id); st != nil && st.State == pleg.StateExited {
		h.Status = st
	}
	return h
}

// Fault is a fault of a call before it answers. If it returns an error, the
// call fails with that error. If it returns nil, the call answers as it would
// without the fault. ctx is the context of the call.
type Fault func(ctx context.Context) error

// Hang is a [Fault]: the call does not return until its context ends, and then fails with the error
// of the context.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Fail returns the fault of a call that fails with err; if err is nil, the call
// succeeds.
func Fail(err error) Fault {
	return func(context.Context) error { return err }
}

// Panic returns the fault of a call that panics with value.
func Panic(value any) Fault {
	return func(context.Context) error { panic(value) }
}

// Delay returns the fault of a call that takes d longer, or fails when its
// context ends.
func Delay(d time.Duration) Fault {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Block returns the fault of a call that waits until release is closed and ignores its context, as
// a call that cannot be cancelled.
func Block(release <-chan struct{}) Fault {
	return func(context.Context) error {
		<-release
		return nil
	}
}
