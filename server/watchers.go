package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// errTakenOver ends a watcher whose place a client with fewer watchers gets.
var errTakenOver = errors.New("too many watchers: a client with fewer needs the place of this one")

// leaveTimeout is the time in which a watcher must leave its place. A client that does not
// read keeps it from that, and loses its connection.
const leaveTimeout = time.Second

// watchers are the places of the Watch calls. If all are taken, a client gets one of the
// client that has most: otherwise one could shut all others out.
type watchers struct {
	max int

	mu    sync.Mutex
	taken int
	// of has the watchers of each client, without those that must leave; the last is
	// the newest.
	of map[any][]*watcher
}

// watcher is a Watch call that has a place.
type watcher struct {
	client any
	conn   *heldConn // nil if this server did not accept it
	cancel context.CancelCauseFunc
	left   chan struct{}
}

func newWatchers(n int) *watchers { return &watchers{max: n, of: make(map[any][]*watcher)} }

// acquire waits for a place, at most as long as another watcher needs to leave. It returns the
// context of the watcher, which ends when it must leave. leave must be called when it has
// ended; it is nil if there is no place.
func (w *watchers) acquire(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	x := &watcher{client: clientOf(ctx), conn: heldConnOf(ctx), cancel: cancel, left: make(chan struct{})}
	leave = func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(x)
		w.taken--
		close(x.left)
	}
	before, ok := w.add(x)
	if !ok {
		cancel(nil)
		return nil, nil
	}
	if before != nil && !before.evict(ctx) {
		leave()
		return nil, nil
	}
	return ctx, leave
}

// evict ends a watcher and reports whether it has left: not if ctx ends before, nor if its
// client does not read on a connection that this server cannot close.
func (x *watcher) evict(ctx context.Context) bool {
	x.cancel(errTakenOver)
	late := time.NewTimer(leaveTimeout)
	defer late.Stop()
	select {
	case <-x.left:
		return true
	case <-ctx.Done():
		return false
	case <-late.C:
	}
	if x.conn == nil {
		return false
	}
	_ = x.conn.Close()
	select {
	case <-x.left:
		return true
	case <-ctx.Done():
		return false
	}
}

// add counts a watcher. It returns the watcher that must leave before; nil if there is
// room.
func (w *watchers) add(x *watcher) (before *watcher, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken >= w.max {
		if before = w.newestOfMost(x.client); before == nil {
			return nil, false
		}
		w.drop(before)
	}
	w.taken++
	w.of[x.client] = append(w.of[x.client], x)
	return before, true
}

// newestOfMost returns the newest watcher of the client that has most; nil if this one would
// then have more. The lock is held.
func (w *watchers) newestOfMost(client any) *watcher {
	var most []*watcher
	for _, of := range w.of {
		if len(of) > len(most) {
			most = of
		}
	}
	if len(most) <= len(w.of[client])+1 {
		return nil
	}
	return most[len(most)-1]
}

// drop forgets a watcher of a client. The lock is held.
func (w *watchers) drop(x *watcher) {
	of := w.of[x.client]
	i := slices.Index(of, x)
	if i < 0 {
		return
	}
	if of = slices.Delete(of, i, i+1); len(of) > 0 {
		w.of[x.client] = of
	} else {
		delete(w.of, x.client)
	}
}

// clientOf returns what is the same for all calls of a process, or of a connection if the
// process is not known. Without a [gate], that is the client's address, which says nothing
// on a Unix socket.
func clientOf(ctx context.Context) any {
	if held := heldConnOf(ctx); held != nil {
		if held.process != 0 {
			return held.process
		}
		return held
	}
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return nil
}
