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

// watchers are the places of the Watch calls. If all are taken, a connection gets one of the
// connection that has most: otherwise one client could shut all others out.
type watchers struct {
	max int

	mu    sync.Mutex
	taken int
	// of has the watchers of each connection, without those that must leave; the last is
	// the newest.
	of map[any][]*watcher
}

// watcher is a Watch call that has a place.
type watcher struct {
	conn   any
	cancel context.CancelCauseFunc
	left   chan struct{}
}

func newWatchers(n int) *watchers { return &watchers{max: n, of: make(map[any][]*watcher)} }

// take waits for a place, at most as long as another watcher needs to leave. It returns the
// context of the watcher, which ends when it must leave. leave must be called when it has
// ended; it is nil if there is no place.
func (w *watchers) take(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	x := &watcher{conn: connectionOf(ctx), cancel: cancel, left: make(chan struct{})}
	leave = func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(x)
		w.taken--
		close(x.left)
	}
	before, ok := w.enter(x)
	if !ok {
		cancel(nil)
		return nil, nil
	}
	if before != nil && !before.leaves(ctx) {
		leave()
		return nil, nil
	}
	return ctx, leave
}

// leaves ends a watcher and reports whether it has left: not if ctx ends before, nor if its
// client does not read on a connection that this server cannot close.
func (x *watcher) leaves(ctx context.Context) bool {
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
	held, ok := x.conn.(*heldConn)
	if !ok {
		return false
	}
	_ = held.Close()
	select {
	case <-x.left:
		return true
	case <-ctx.Done():
		return false
	}
}

// enter counts a watcher. It returns the watcher that must leave before; nil if there is
// room.
func (w *watchers) enter(x *watcher) (before *watcher, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken >= w.max {
		if before = w.newestOfMost(x.conn); before == nil {
			return nil, false
		}
		w.drop(before)
	}
	w.taken++
	w.of[x.conn] = append(w.of[x.conn], x)
	return before, true
}

// newestOfMost returns the newest watcher of the connection that has most; nil if conn would
// then have more than that one. The lock is held.
func (w *watchers) newestOfMost(conn any) *watcher {
	var most []*watcher
	for _, of := range w.of {
		if len(of) > len(most) {
			most = of
		}
	}
	if len(most) <= len(w.of[conn])+1 {
		return nil
	}
	return most[len(most)-1]
}

// drop forgets a watcher of a connection. The lock is held.
func (w *watchers) drop(x *watcher) {
	of := w.of[x.conn]
	i := slices.Index(of, x)
	if i < 0 {
		return
	}
	if of = slices.Delete(of, i, i+1); len(of) > 0 {
		w.of[x.conn] = of
	} else {
		delete(w.of, x.conn)
	}
}

// connectionOf returns what is the same for all calls on a connection. Without a [gate],
// that is the client's address, which says nothing on a Unix socket.
func connectionOf(ctx context.Context) any {
	if held := heldConnOf(ctx); held != nil {
		return held
	}
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return nil
}
