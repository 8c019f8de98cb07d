package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// maxAlone is how many dead pods are listed one by one at a time. One list of all pods is
// cheaper than more of them.
const maxAlone = 8

// deadPods are the pods whose sandboxes are all dead. Their removal is next, and not
// every runtime announces it: CRI-O never does. So while events stand in for lists, a
// dead pod is listed alone until it is gone or runs again, with waits that double. A list
// of all pods would overtake events of other pods, and hide the steps that they report.
type deadPods struct {
	// firstWait is the first wait: longer than the relist period, so that dead pods cost
	// nothing while all pods are listed that often.
	firstWait time.Duration
	pods      map[pleg.PodUID]*deadPod
	// listed is when the last list of all pods was applied; stream is whether the event
	// stream was up then.
	listed time.Time
	stream bool
	// wake is when a pod may be due; zero if never.
	wake time.Time
}

// deadPod is when a dead pod changed or was last listed alone, and its wait after that.
type deadPod struct {
	listed time.Time
	wait   time.Duration
}

// podChanged takes what a pod is now; nil if it is gone.
func (d *deadPods) podChanged(uid pleg.PodUID, pod *pleg.Pod, now time.Time) {
	if !isDead(pod) {
		delete(d.pods, uid)
		return
	}
	d.pods[uid] = &deadPod{listed: now, wait: d.firstWait}
	d.wake = stage.Earlier(d.wake, now.Add(d.firstWait))
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

func (d *deadPods) listingApplied(now time.Time, stream bool) {
	d.listed, d.stream = now, stream
}

// check returns the pods to list alone, or whether to list all, and when to ask again; zero
// if never. Those due soon are listed too, so that there is some time between two checks.
func (d *deadPods) check(now time.Time) (alone []pleg.PodUID, all bool, again time.Time) {
	switch {
	case !d.stream:
		return nil, false, time.Time{}
	case d.wake.After(now):
		return nil, false, d.wake
	}
	d.wake = time.Time{}
	for uid, pod := range d.pods {
		due := later(pod.listed, d.listed).Add(pod.wait)
		if due.Before(now.Add(d.firstWait)) {
			alone = append(alone, uid)
		}
		d.wake = stage.Earlier(d.wake, due)
	}
	if d.wake.IsZero() || d.wake.After(now) {
		return nil, false, d.wake
	}
	for _, uid := range alone {
		pod := d.pods[uid]
		pod.listed, pod.wait = now, 2*pod.wait
	}
	d.wake = now.Add(d.firstWait)
	if len(alone) > maxAlone {
		return nil, true, d.wake
	}
	return alone, false, d.wake
}
