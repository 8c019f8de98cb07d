package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// startPatience is how long one inspection may delay the first mark. A pod that
// hangs while the pipeline starts must not keep every subscriber waiting.
const startPatience = 10 * time.Second

// coverage knows which pods the newest listing does not cover: what it shows of them
// has not been delivered.
type coverage struct {
	// listedAt is the time of the newest listing; zero before the first.
	listedAt time.Time
	behind   map[pleg.PodUID]lag
	spare    map[pleg.PodUID]lag // empty memory for the next listing
	// fresh is the number of pods that changed with the newest listing and have not
	// been inspected since. Its mark waits for them, but not for pods that fail.
	fresh int
	// marked is set once the subscribers know of the newest listing.
	marked bool
	start  start
}

// lag is a pod that the newest listing does not cover.
type lag struct {
	// until is the time of the last listing that covers it; zero if there is none.
	until time.Time
	fresh bool
}

// start follows the inspections of the first listing. The first mark waits for them,
// because it says that the initial state is complete.
type start struct {
	over bool
	pods map[pleg.PodUID]startingPod
	left int // that are not inspected
}

type startingPod struct {
	accepted  time.Time // when an inspector began; zero before
	inspected bool      // well or not
}

func newCoverage() coverage {
	return coverage{behind: make(map[pleg.PodUID]lag), spare: make(map[pleg.PodUID]lag)}
}

// listed notes a listing, and which pods it does not cover.
func (c *coverage) listed(at time.Time, pending []*pleg.Pod) {
	before := c.listedAt
	c.listedAt, c.marked, c.fresh = at, false, 0
	for _, pod := range pending {
		was, ok := c.behind[pod.UID]
		if !ok {
			was.until = before
			c.fresh++
		}
		c.spare[pod.UID] = lag{until: was.until, fresh: !ok}
	}
	clear(c.behind)
	c.behind, c.spare = c.spare, c.behind
	if before.IsZero() {
		c.start.pods = make(map[pleg.PodUID]startingPod, len(pending))
		for _, pod := range pending {
			c.start.pods[pod.UID] = startingPod{}
		}
		c.start.left = len(pending)
	}
}

// settled notes that what was observed of a pod is delivered.
func (c *coverage) settled(uid pleg.PodUID) {
	c.tried(uid)
	delete(c.behind, uid)
}

// reached notes that everything up to a time is delivered of a pod. That may be less than
// the newest listing, if an event is newer than the listing and shows less.
func (c *coverage) reached(uid pleg.PodUID, asOf time.Time) {
	if asOf.Before(c.listedAt) {
		c.tried(uid)
		return
	}
	c.settled(uid)
}

// tried notes that a change of a pod has ended, well or not.
func (c *coverage) tried(uid pleg.PodUID) {
	if l, ok := c.behind[uid]; ok && l.fresh {
		c.behind[uid] = lag{until: l.until}
		c.fresh--
	}
	if p, ok := c.start.pods[uid]; ok && !p.inspected {
		c.start.pods[uid] = startingPod{inspected: true}
		c.start.left--
	}
}

// accepted notes that an inspector has begun with a pod.
func (c *coverage) accepted(uid pleg.PodUID) {
	if c.start.over {
		return
	}
	if p, ok := c.start.pods[uid]; ok && !p.inspected {
		c.start.pods[uid] = startingPod{accepted: time.Now()}
	}
}

// isInitial reports whether the next change of a pod tells what the first listing
// showed, and the first mark has not been sent.
func (d *Differ) isInitial(rec *record) bool {
	if rec.old != nil {
		return false
	}
	if d.coverage.listedAt.IsZero() {
		return rec.listing == 1 // the first listing is being applied
	}
	_, ok := d.coverage.start.pods[rec.uid]
	return ok
}

// started reports whether the pods of the first listing have been inspected, except
// those whose inspection takes too long.
func (c *coverage) started(now time.Time) bool {
	if c.start.over {
		return true
	}
	if c.listedAt.IsZero() {
		return false
	}
	if c.start.left > 0 {
		for _, p := range c.start.pods {
			if !p.inspected && (p.accepted.IsZero() || now.Sub(p.accepted) < startPatience) {
				return false
			}
		}
	}
	c.start = start{over: true}
	return true
}

// markCurrent tells the subscribers how far they are current, unless pods that just
// changed are about to be inspected.
func (d *Differ) markCurrent() {
	c := &d.coverage
	if c.fresh > 0 || c.marked && d.waiting.records.Len() > 0 {
		return
	}
	d.mark()
}

// mark sends a mark for the newest listing, with the pods that it does not cover.
func (d *Differ) mark() {
	c := &d.coverage
	if !c.started(time.Now()) {
		if d.schedule.inspect.len() == 0 && !c.listedAt.IsZero() {
			d.lister.RelistSoon() // to see whether the inspections that are left hang
		}
		return
	}
	c.marked = true
	d.schedule.known.push(stage.Change{Current: c.listedAt, Behind: d.podsBehind()})
}

// markBehind sends the mark of the newest listing at last, before the next one is
// applied: pods that are still not inspected by now take longer than a period.
func (d *Differ) markBehind() {
	if !d.coverage.marked && !d.coverage.listedAt.IsZero() {
		d.mark()
	}
}

// podsBehind returns the pods that the newest listing does not cover, those that lag
// most first.
func (d *Differ) podsBehind() []stage.Behind {
	if len(d.coverage.behind) == 0 {
		return nil
	}
	behind := make([]stage.Behind, 0, len(d.coverage.behind))
	for uid, l := range d.coverage.behind {
		if rec := d.records[uid]; rec != nil {
			behind = append(behind, stage.Behind{Pod: rec.nameOf(rec.current.pod), Until: l.until})
		}
	}
	slices.SortFunc(behind, func(a, b stage.Behind) int { return a.Until.Compare(b.Until) })
	return behind
}
