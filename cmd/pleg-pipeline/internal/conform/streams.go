package conform

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tryEventsOff can only be tried on a runtime without events.
func tryEventsOff(ctx context.Context, s *suite, _ *pod) (string, error) {
	switch err := s.offersEvents(ctx); {
	case err == nil:
		return "the runtime has events", errNotTested
	case !errors.Is(err, errNotOffered):
		return "", err
	case status.Code(s.eventsErr) == codes.Unimplemented:
		return "Unimplemented", nil
	default:
		return judge(false, "the stream ends with %v", s.eventsErr)
	}
}

// runShort creates a container and removes it without a start, which costs a runtime
// little and gives two events.
func (n *node) runShort(ctx context.Context, p *pod) error {
	id, err := n.createContainer(ctx, p, 0, "pause")
	if err != nil {
		return err
	}
	return n.removeContainer(ctx, p, id)
}

// unreadContainers are enough to fill the buffers of an event stream.
const unreadContainers = 300

// tryUnreadClient opens a stream and does not read it while containers come and go.
func tryUnreadClient(ctx context.Context, s *suite, _ *pod) (string, error) {
	readers, closeAll, err := s.listen(ctx, false)
	if err != nil {
		return "", err
	}
	defer closeAll()
	reader := readers[0]
	_, leave, err := s.node.openEvents(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	p, err := s.node.runPod(ctx, nil)
	if err != nil {
		return "", err
	}
	for i := range unreadContainers {
		if err := s.node.runShort(ctx, p); err != nil {
			got := len(reader.of(p))
			leave() // the runtime continues
			return judge(false, "after %d containers a call waits longer than %v; the other client has %d of %d events",
				i, s.opts.CallTimeout, got, len(p.steps))
		}
	}
	if err := s.settle(ctx, []*pod{p}, reader); err != nil {
		return "", err
	}
	// What a runtime never announces is another promise.
	if got, want := len(reader.of(p)), 2*unreadContainers; got < want {
		return judge(false, "the other client got %d of %d events of containers", got, want)
	}
	return judge(true, "%d events of containers, and no call waited", 2*unreadContainers)
}

const (
	reconnects            = 5
	containersPerConnects = 8
)

// tryReconnect replaces the stream by a new one while containers come and go.
func tryReconnect(ctx context.Context, s *suite, p *pod) (string, error) {
	watchers, _, err := s.listen(ctx, false)
	if err != nil {
		return "", err
	}
	w := watchers[0]
	defer func() { w.close() }()
	before := len(p.steps)
	seen := make(map[step]bool)
	collect := func() {
		for _, e := range w.of(p) {
			seen[e.step()] = true
		}
	}
	for range reconnects {
		changed := make(chan error, 1)
		go func() { changed <- s.runShorts(ctx, p) }() // received below
		err := sleep(ctx, 100*time.Millisecond)
		w.close()
		collect()
		if err == nil {
			var next *watcher
			if next, err = s.node.watch(ctx, false); err == nil {
				w = next
			}
		}
		if err := errors.Join(err, <-changed); err != nil {
			return "", err
		}
	}
	if err := s.settle(ctx, []*pod{p}, w); err != nil {
		return "", err
	}
	collect()
	lost := 0
	for _, step := range p.steps[before:] {
		if !seen[step] {
			lost++
		}
	}
	if lost > 0 {
		return judge(false, "%d of %d events lost in %d reconnects", lost, len(p.steps)-before, reconnects)
	}
	return judge(true, "none of %d events lost in %d reconnects", len(p.steps)-before, reconnects)
}

// runShorts runs several short containers.
func (s *suite) runShorts(ctx context.Context, p *pod) error {
	for range containersPerConnects {
		if err := s.node.runShort(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// tryBacklog lets containers come and go without a client of ours.
func tryBacklog(ctx context.Context, s *suite, p *pod) (string, error) {
	if err := s.runShorts(ctx, p); err != nil {
		return "", err
	}
	if err := sleep(ctx, s.opts.Settle/3); err != nil {
		return "", err
	}
	came := time.Now()
	w, err := s.node.watch(ctx, false)
	if err != nil {
		return "", err
	}
	defer w.close()
	if err := sleep(ctx, s.opts.Settle/3); err != nil {
		return "", err
	}
	old, oldest := 0, time.Duration(0)
	for _, e := range w.of(p) {
		if at := time.Unix(0, e.GetCreatedAt()); at.Before(came) {
			old++
			oldest = max(oldest, came.Sub(at))
		}
	}
	if old > 0 {
		return judge(false, "%d of %d earlier events came, up to %v old", old, len(p.steps), oldest.Round(10*time.Millisecond))
	}
	return judge(true, "none of %d earlier events", len(p.steps))
}
