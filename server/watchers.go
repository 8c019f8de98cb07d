package server

import (
	"context"
	"errors"
	"time"
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
	var client any = conn
	if conn.process != nil {
		client = conn.process
	}
	var x *place
	x = newPlace(client, func() {
		cancel(errTakenOver)
		time.AfterFunc(leaveTimeout, func() {
			select {
			case <-x.released:
			default:
				conn.closeNow()
			}
		})
	})
	leave = func() {
		cancel(nil)
		s.watchers.release(x)
	}
	victim, ok := s.watchers.acquire(x)
	if !ok {
		leave()
		return nil, nil
	}
	if victim != nil {
		<-victim.released
	}
	return ctx, leave
}
