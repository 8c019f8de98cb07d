package dispatcher

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// bookmark is a Bookmark for the subscribers that ask for bookmarks.
type bookmark struct {
	seq     uint64 // the events that it covers end at this number or before
	current time.Time
	behind  []behind
}

type behind struct {
	pod    *pleg.Pod
	labels map[string]string
	until  time.Time
}

// mark passes a mark of the differ on. The first mark says that the initial state is complete.
func (d *Dispatcher) mark(m stage.Mark) {
	if !m.Current.IsZero() {
		b := &bookmark{seq: d.last.newest, current: m.Current}
		for _, pod := range m.Behind {
			b.behind = append(b.behind, behind{pod.Pod, d.present.labels(pod.Pod.UID, pod.Pod), pod.Until})
		}
		d.last.mark = b
		if d.last.synced == nil {
			d.last.synced = new(d.last.newest)
		}
	}
	d.publish()
	if d.last.synced != nil && d.opts.Synced != nil {
		d.opts.Synced()
	}
	for _, caller := range m.Relisted {
		caller <- nil
	}
}

// currentFor returns the time of the newest listing whose changes of a subscriber's pods have all
// been published; zero if there is none.
func (b *bookmark) currentFor(s *Subscription) time.Time {
	i := slices.IndexFunc(b.behind, func(b behind) bool {
		return s.filter.WantsPod(b.pod.Namespace, b.pod.UID) && s.filter.WantsLabels(b.labels)
	})
	if i < 0 {
		return b.current
	}
	return b.behind[i].until
}
