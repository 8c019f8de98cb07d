package pipeline_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podRuntime is a freeRuntime that can list one pod.
type podRuntime struct{ *freeRuntime }

func (r podRuntime) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	l := &listing{at: r.now(), only: uid, pods: make(map[pleg.PodUID]*pleg.Pod)}
	n := r.beginPod(l)
	good := false
	defer func() { r.endPod(l, good) }()
	pods, err := r.list(ctx, l, r.roll("list of "+string(uid), n))
	if good = err == nil; !good || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}

func (r podRuntime) beginPod(l *listing) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	under := 0
	for uid, lists := range r.podLists {
		if len(lists) > 0 && lists[len(lists)-1].done == 0 {
			under++
			if uid == l.only {
				r.broken = append(r.broken, fmt.Sprintf("two lists of pod %s at %v", uid, l.at))
			}
		}
	}
	if under == r.inspectors {
		r.broken = append(r.broken, fmt.Sprintf("%d lists of one pod at %v", under+1, l.at))
	}
	r.podLists[l.only] = append(r.podLists[l.only], l)
	return len(r.podLists[l.only])
}

// endPod notes when the list has ended. If it went wrong, all pods are listed.
func (r podRuntime) endPod(l *listing, good bool) {
	if !good {
		r.wake()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.done = r.now()
}

// relists wants each request for a relist of the pod to be served at once, or
// at the end of the pod's list that is under way; a list of all pods that began
// after the request does as well. With fewer inspectors than pods the request
// may have to wait.
func (r *replay) relists() {
	rt := r.bed.runtime
	if !r.bed.single || rt.inspectors < len(rt.history.pods) {
		return
	}
	for _, at := range rt.history.relists[r.uid] {
		due := at
		for _, l := range rt.podLists[r.uid] {
			if l.at < at && at < l.done {
				due = l.done
			}
		}
		served := slices.ContainsFunc(rt.podLists[r.uid], func(l *listing) bool { return l.at == due }) ||
			slices.ContainsFunc(rt.listings, func(l *listing) bool {
				return l.only == "" && l.at > at && l.done <= due
			})
		if !served {
			r.t.Errorf("the relist of pod %s asked for at %v was not made", r.uid, at)
		}
	}
}
