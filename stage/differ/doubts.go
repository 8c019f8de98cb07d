package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// doubts are the pods whose last status contradicts its list. Each is inspected again, from its next
// answer on, with a wait that doubles, until list and status agree. They take the slots of retries,
// and only while no pod that changed waits.
type doubts struct {
	first, longest time.Duration
	pods           []*doubt // in the order in which their waits end
}

type doubt struct {
	rec  *record
	wait time.Duration
	due  time.Time
}

// add notes that a status contradicts its list, perhaps again.
func (d *doubts) add(rec *record, now time.Time) {
	next := &doubt{rec: rec, wait: d.first}
	if i := d.of(rec); i >= 0 {
		next.wait = min(2*d.pods[i].wait, d.longest)
		d.pods = slices.Delete(d.pods, i, i+1)
	}
	next.due = now.Add(next.wait)
	d.pods = append(d.pods, next)
	slices.SortStableFunc(d.pods, func(a, b *doubt) int { return a.due.Compare(b.due) })
}

// remove notes that list and status agree, or that the pod is gone.
func (d *doubts) remove(rec *record) {
	if i := d.of(rec); i >= 0 {
		d.pods = slices.Delete(d.pods, i, i+1)
	}
}

func (d *doubts) of(rec *record) int {
	return slices.IndexFunc(d.pods, func(one *doubt) bool { return one.rec == rec })
}

// next returns a change of the first pod whose wait has ended and that an answer has shown unchanged
// since. again is the time to call next again if no input comes; zero if never.
func (d *doubts) next(now time.Time) (c *stage.Change, again time.Time) {
	for _, one := range d.pods {
		if one.due.After(now) {
			return nil, one.due
		}
		if c := one.rec.recheck(); c != nil {
			return c, time.Time{}
		}
	}
	return nil, time.Time{}
}
