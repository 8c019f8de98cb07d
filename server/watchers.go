package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/peer"
)

// errTakenOver ends a watcher whose place a client with fewer watchers gets.
var errTakenOver = errors.New("too many watchers: a client with fewer needs the place of this one")

// leaveTimeout is the time in which a watcher must leave its place. A client that does not
// read keeps it from that, and loses its connection.
const leaveTimeout = time.Second

// joinWatchers waits for a place, at most as long as another watcher needs to leave. It returns
// the context of the watcher, which ends when it must leave. leave must be called when it has
// ended; it is nil if there is no place.
func (s *Server) joinWatchers(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	conn := heldConnOf(ctx)
	var x *place
	x = newPlace(clientOf(ctx), func() {
		cancel(errTakenOver)
		time.AfterFunc(leaveTimeout, func() {
			select {
			case <-x.released:
			default:
				conn.closeIfHeld()
			}
		})
	})
	leave = func() {
		cancel(nil)
		s.watchers.release(x)
	}
	victim, ok := s.watchers.acquire(x)
	if ok && (victim == nil || hasLeft(victim)) {
		return ctx, leave
	}
	leave()
	return nil, nil
}

// hasLeft waits until a watcher has left. It returns false if its client does not read on a
// connection that this server cannot close.
func hasLeft(victim *place) bool {
	late := time.NewTimer(2 * leaveTimeout)
	defer late.Stop()
	select {
	case <-victim.released:
		return true
	case <-late.C:
		return false
	}
}

// clientOf returns what is the same for all calls of a process, or of a connection if the
// process is not known. Without a [gate], that is the client's address, which says nothing
// on a Unix socket.
func clientOf(ctx context.Context) any {
	if held := heldConnOf(ctx); held != nil {
		if held.process != nil {
			return held.process
		}
		return held
	}
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return nil
}
