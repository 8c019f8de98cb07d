package shim

import (
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// overloaded is a number of runnable threads for each CPU. Above it, ends may be reported late, by at most
	// lateBy: if an end took containerd too long, it tries again with a wait that doubles. It was 92 s late
	// beside 20 busy loops on two CPUs.
	overloaded = 4
	lateBy     = 5 * time.Minute
)

// answers reports whether the runtime answers as usual.
func answers(s pleg.Status) bool {
	r := s.Relist
	return r.Failures == 0 && nodestate.Of(s.Details).Since.Slow.IsZero() && (r.Started.IsZero() || s.At.Sub(r.Started) < settle)
}

// missesEnds reports whether the runtime calls a container running whose process has ended.
func (w *Watcher) missesEnds() bool {
	for _, c := range w.wanted {
		if !c.ended.IsZero() {
			return true
		}
	}
	return false
}

// isOverloaded reports whether many threads wait for a CPU of the node now.
func (w *Watcher) isOverloaded() bool {
	text, _ := fs.ReadFile(w.o.Proc, "loadavg") // empty if it is not there
	var load [3]float64
	var runnable int
	_, _ = fmt.Sscan(string(text), &load[0], &load[1], &load[2], &runnable) // 0 without the text
	return runnable > overloaded*runtime.NumCPU()
}

// endIsLost reports whether the runtime does not know in time that a container has ended. It adds
// the beginning to the trouble, and the shim if that is the cause. Only a status counts that began
// after the runtime had enough time.
func (w *Watcher) endIsLost(c *container, asOf, now time.Time, stuck *nodestate.Stuck) bool {
	stuck.Since = c.ended
	if s := w.shims[c.shim]; s != nil && s.process != nil {
		told := !asOf.Before(c.ended.Add(settle / 2))
		switch {
		case told: // until the shim runs again
			c.ask = now.Add(2 * lookPeriod)
		case c.held.IsZero():
			c.ask = c.ended.Add(settle / 2)
		}
		c.held = now
		if s.since.Before(stuck.Since) {
			stuck.Since = s.since // the end of the container is no new trouble
		}
		stuck.Shim = s.process
		return now.Sub(s.since) >= settle && now.Sub(c.ended) >= settle && told
	}
	// An end that the runtime could not report yet does not count. A trouble that was found stays.
	if !c.found {
		c.late = slices.MinFunc([]time.Time{w.relieved, c.ended.Add(lateBy)}, time.Time.Compare)
	}
	stuck.Since = slices.MaxFunc([]time.Time{c.ended, c.held, w.answering, c.late}, time.Time.Compare)
	c.found = c.found || !asOf.Before(stuck.Since.Add(agreesWithin))
	return !asOf.Before(stuck.Since.Add(agreesWithin))
}
