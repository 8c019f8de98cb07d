package conform

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tryEventsOff can only be tried on a runtime without events.
func tryEventsOff(t *trial) result {
	if t.events == nil {
		return result{NotTested, "the runtime has events"}
	}
	return judge(status.Code(t.events) == codes.Unimplemented, "the stream ends with %v", t.events)
}

// runShorts creates containers and removes them without a start, which costs a runtime little
// and gives two events each.
func (t *trial) runShorts(p *pod, n int) {
	for range n {
		t.removeContainer(p, t.createContainer(p, 0, "pause"))
	}
}

// unreadContainers are enough to fill the buffers of an event stream.
const unreadContainers = 300

// tryUnreadClient opens a stream and does not read it while containers come and go.
func tryUnreadClient(t *trial) result {
	watchers := t.listen(false)
	defer watchers.close()
	_, leave, err := t.openEvents(t.ctx)
	check(err)
	defer leave()
	p := t.runPod(nil)
	for i := range unreadContainers {
		if err := attempt(func() { t.runShorts(p, 1) }); err != nil {
			got := len(watchers[0].of(p))
			leave() // the runtime continues
			return judge(false, "after %d containers a call waits longer than %v; the other client has %d of %d events",
				i, t.opts.CallTimeout, got, len(p.steps))
		}
	}
	t.settle(watchers, p)
	// What a runtime never announces is another promise.
	if got, want := len(watchers[0].of(p)), 2*unreadContainers; got < want {
		return judge(false, "the other client got %d of %d events of containers", got, want)
	}
	return judge(true, "%d events of containers, and no call waited", 2*unreadContainers)
}

const (
	reconnects            = 5
	containersPerConnects = 8
)

// tryReconnect replaces the stream by a new one while containers come and go.
func tryReconnect(t *trial) result {
	t.needEvents()
	p := t.runPod(nil)
	watchers := t.listen(false)
	defer watchers.close()
	before := len(p.steps)
	seen := make(map[step]bool)
	collect := func() {
		for _, e := range watchers[0].of(p) {
			seen[e.step()] = true
		}
	}
	for range reconnects {
		t.each(2, 2, func(part *trial, i int) {
			if i == 0 {
				part.runShorts(p, containersPerConnects)
				return
			}
			part.sleep(100 * time.Millisecond)
			watchers.close()
			collect()
			watchers[0] = must(t.watch(t.ctx, false)) // it outlives this part
		})
	}
	t.settle(watchers, p)
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

// tryBacklog lets containers come and go without a client of ours.
func tryBacklog(t *trial) result {
	t.needEvents()
	p := t.runPod(nil)
	t.runShorts(p, containersPerConnects)
	t.sleep(t.opts.Settle / 3)
	came := time.Now()
	w := must(t.watch(t.ctx, false))
	defer w.close()
	t.sleep(t.opts.Settle / 3)
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
