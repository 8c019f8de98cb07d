package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// errTakenOver ends a watcher whose place a client with fewer watchers has got.
var errTakenOver = errors.New("too many watchers: a client with fewer needs the place of this one")

// watchers are the places of the Watch calls. If all are taken, a connection gets one of the
// connection that has most: otherwise one client could shut all others out.
type watchers struct {
	max int

	mu    sync.Mutex
	taken int
	// of has the watchers of each connection; the last is the newest.
	of map[any][]*watcher
}

// watcher is a Watch call that has a place.
type watcher struct {
	conn   any
	cancel context.CancelCauseFunc
	// overdue closes the connection of a watcher that does not end without its place,
	// because its client does not read; nil unless it has lost its place.
	overdue *time.Timer
}

func newWatchers(n int) *watchers { return &watchers{max: n, of: make(map[any][]*watcher)} }

// take returns the context of a watcher, which ends when it loses its place. leave must be
// called when it has ended; it is nil if there is no place.
func (w *watchers) take(ctx context.Context, timeout time.Duration) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	x := &watcher{conn: connectionOf(ctx), cancel: cancel}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken >= w.max && !w.takeOver(x.conn, timeout) {
		cancel(nil)
		return nil, nil
	}
	w.taken++
	w.of[x.conn] = append(w.of[x.conn], x)
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(x)
		if x.overdue != nil {
			x.overdue.Stop()
		}
		cancel(nil)
	}
}

// takeOver ends the newest watcher of the connection that has most, unless this one would
// then have as many. The lock is held.
func (w *watchers) takeOver(conn any, timeout time.Duration) bool {
	var most []*watcher
	for _, of := range w.of {
		if len(of) > len(most) {
			most = of
		}
	}
	if len(most) <= len(w.of[conn])+1 {
		return false
	}
	x := most[len(most)-1]
	w.drop(x)
	x.cancel(errTakenOver)
	if held, ok := x.conn.(*heldConn); ok {
		x.overdue = time.AfterFunc(timeout, func() { _ = held.Close() })
	}
	return true
}

// drop frees the place of a watcher that has one. The lock is held.
func (w *watchers) drop(x *watcher) {
	of := w.of[x.conn]
	i := slices.Index(of, x)
	if i < 0 {
		return
	}
	w.taken--
	if of = slices.Delete(of, i, i+1); len(of) > 0 {
		w.of[x.conn] = of
	} else {
		delete(w.of, x.conn)
	}
}

// connectionOf returns what is the same for all calls on a connection. Without a [gate],
// that is the client's address, which says nothing on a Unix socket.
func connectionOf(ctx context.Context) any {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if held, ok := p.AuthInfo.(heldBy); ok {
		return held.conn
	}
	return p.Addr.String()
}
