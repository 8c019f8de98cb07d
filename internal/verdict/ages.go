package verdict

import (
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Ages remember the beginnings of troubles that are not in a status. The zero value is ready to
// use, also concurrently.
type Ages struct {
	mu    sync.Mutex
	since nodestate.Since
	// silent is true while lists hang or fail, answering is the time since which they do not.
	silent    bool
	answering time.Time
	// lists are the lists of the last minute that did not hang, without each list that was shorter
	// than a later one.
	lists []ended
}

// ended contains the time at which a list ended, and how long the list took.
type ended struct {
	at   time.Time
	took time.Duration
}

// settle is the time in which a runtime that answers lists again also answers the waiting
// inspections.
const settle = time.Second

// Answering returns the end of the last time in which lists hung or failed and inspections waited
// for the runtime. The durations of inspections that ended before then mean nothing more. It must
// be called as often as [Ages.Complete].
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

// Complete sets Since in the details of a status. A trouble that the last call did not see begins now: call it
// often.
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
