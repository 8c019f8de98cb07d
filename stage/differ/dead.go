package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// unannouncedShare is the part of the time since a dead pod changed after which it
	// is listed again, unless the runtime announces removals. After unannouncedFor the
	// wait doubles all the same: a pod that ran to its end may stay for days.
	unannouncedShare = 16
	unannouncedFor   = 5 * time.Minute
	// maxAlone is how many dead pods are listed one by one at a time. One list of all
	// pods is cheaper than more of them.
	maxAlone = 8
)

// deadPods are the pods whose sandboxes are all dead. Their removal is next, and not
// every runtime announces it: CRI-O never does. So while events stand in for lists, a
// dead pod is listed until it is gone or runs again, less often the longer it has not
// changed. If the runtime announces removals, the wait doubles each time. A list of all
// pods would overtake events of other pods, and hide the steps that they report.
type deadPods struct {
	relistPod func(pleg.PodUID)
	relistAll func()
	// firstWait is the shortest time between two lists: longer than the relist period,
	// so that dead pods cost nothing while all pods are listed that often.
	firstWait time.Duration

	pods map[pleg.PodUID]*deadPod
	// listed is when the last listing was applied; stream is whether the event stream
	// was up then. announced is whether it has announced the removal of a sandbox.
	listed            time.Time
	stream, announced bool
	// timer fires at wake, if that is set.
	timer *time.Timer
	wake  time.Time
}

// deadPod is when a dead pod last changed and when it was last listed alone.
type deadPod struct{ changed, listed time.Time }

func newDeadPods(o Options) deadPods {
	return deadPods{
		relistPod: o.Pods.RequestRelist, relistAll: o.Lister.RelistNow,
		firstWait: o.RelistPeriod * 3 / 2, pods: make(map[pleg.PodUID]*deadPod),
	}
}

// start returns the channel on which the loop learns that a pod may be due.
func (d *deadPods) start() <-chan time.Time {
	d.timer = time.NewTimer(0)
	d.timer.Stop()
	return d.timer.C
}

// podChanged takes what a pod is now; nil if it is gone.
func (d *deadPods) podChanged(uid pleg.PodUID, pod *pleg.Pod, now time.Time) {
	if !isDead(pod) {
		delete(d.pods, uid)
		return
	}
	d.pods[uid] = &deadPod{changed: now, listed: now}
	d.wakeBy(now.Add(d.firstWait), now)
}

// isDead reports whether a pod has sandboxes and none is ready, or has no sandbox and
// no running container.
func isDead(pod *pleg.Pod) bool {
	switch {
	case pod == nil:
		return false
	case len(pod.Sandboxes) == 0:
		return !pod.Running()
	}
	return !slices.ContainsFunc(pod.Sandboxes, func(s *pleg.Container) bool { return s.State == pleg.StateRunning })
}

// listingApplied notes a listing of all pods.
func (d *deadPods) listingApplied(now time.Time, stream bool) {
	d.listed, d.stream, d.announced = now, stream, d.announced && stream
	if len(d.pods) > 0 {
		d.wakeBy(now.Add(d.firstWait), now)
	}
}

// wakeBy has the timer fire at a time or earlier.
func (d *deadPods) wakeBy(at, now time.Time) {
	if d.timer == nil || !d.stream || !d.wake.IsZero() && !at.Before(d.wake) {
		return
	}
	d.wake = at
	d.timer.Reset(at.Sub(now))
}

// dueAt returns when a pod is to be listed.
func (d *deadPods) dueAt(pod *deadPod) time.Time {
	listed := pod.listed
	if d.listed.After(listed) {
		listed = d.listed
	}
	wait := listed.Sub(pod.changed)
	if !d.announced && wait < unannouncedFor {
		wait /= unannouncedShare
	}
	return listed.Add(max(d.firstWait, wait))
}

// check has the pods listed that are due. Those due soon after them are listed with
// them, so that there is some time between two checks.
func (d *deadPods) check(now time.Time) {
	d.wake = time.Time{}
	if !d.stream {
		return
	}
	var due []pleg.PodUID
	var next time.Time
	for uid, pod := range d.pods {
		at := d.dueAt(pod)
		if at.Before(now.Add(d.firstWait)) {
			due = append(due, uid)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	switch {
	case next.IsZero():
		return
	case next.After(now):
		d.wakeBy(next, now)
		return
	case len(due) > maxAlone:
		d.relistAll()
	default:
		for _, uid := range due {
			d.relistPod(uid)
		}
	}
	for _, uid := range due {
		d.pods[uid].listed = now
	}
	d.wakeBy(now.Add(d.firstWait), now)
}
