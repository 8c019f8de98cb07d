package verdict

import (
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Ages remember when each trouble began of which a status does not say it. The zero value is ready
// to use, also concurrently.
type Ages struct {
	mu    sync.Mutex
	since nodestate.Since
	// silent is true while lists hang or fail, answering is the time since when they do not.
	silent    bool
	answering time.Time
	// lists are those of the last minute that did not hang, without those that a later one took
	// longer than.
	lists []ended
}

// ended is when something ended and how long it took.
type ended struct {
	at   time.Time
	took time.Duration
}

// settle is the time in which a runtime that answers lists again answers what waited for it.
const settle = time.Second

// Answering returns the end of the last time in which lists hung or failed, and what waited for
// their runtime. The inspections that ended before say only that. It must be called as often as
// [Ages.Complete].
func (a *Ages) Answering(s pleg.Status) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	silent := DefaultLimits.lists(s) != nil
	if a.silent && !silent {
		a.answering = s.At.Add(settle)
	}
	a.silent = silent
	return a.answering
}

// Complete sets Since in the details of a status. What was not there at the last call begins now, so that it must
// be called often.
func (a *Ages) Complete(s *pleg.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := func(since *time.Time, is bool) {
		switch {
		case !is:
			*since = time.Time{}
		case since.IsZero():
			*since = s.At
		}
	}
	keep(&a.since.Unhealthy, !s.Healthy)
	keep(&a.since.Degraded, s.Degraded != nil)
	s.Relist.Longest = a.longest(s.Relist, s.At)
	keep(&a.since.Slow, DefaultLimits.slow(*s) != nil)
	nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since = a.since })
}

// longest adds the last list, unless it hung, and returns how long the longest took.
func (a *Ages) longest(r pleg.RelistStatus, now time.Time) time.Duration {
	a.lists = slices.DeleteFunc(a.lists, func(l ended) bool { return now.Sub(l.at) >= recentFor })
	var before pleg.RelistStatus
	if len(a.lists) > 0 {
		before.Longest = a.lists[0].took
	}
	if r.Took < DefaultLimits.hang(before) {
		a.lists = slices.DeleteFunc(a.lists, func(l ended) bool { return l.took <= r.Took })
		a.lists = append(a.lists, ended{r.Success.Add(r.Took), r.Took})
	}
	if len(a.lists) == 0 {
		return 0
	}
	return a.lists[0].took
}
