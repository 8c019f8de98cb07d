package model_test

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
	n := r.startPodList(l)
	good := false
	defer func() { r.finishPodList(l, good) }()
	pods, err := r.list(ctx, l, r.roll("list of "+string(uid), n))
	if good = err == nil; !good || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}

func (r podRuntime) startPodList(l *listing) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	under := 0
	for uid, lists := range r.podLists {
		if len(lists) > 0 && lists[len(lists)-1].done == 0 {
			under++
			if uid == l.only {
				r.violations = append(r.violations, fmt.Sprintf("two lists of pod %s at %v", uid, l.at))
			}
		}
	}
	if under == r.inspectors {
		r.violations = append(r.violations, fmt.Sprintf("%d lists of one pod at %v", under+1, l.at))
	}
	r.podLists[l.only] = append(r.podLists[l.only], l)
	return len(r.podLists[l.only])
}

// finishPodList records the end of the list. If it failed, all pods are listed.
func (r podRuntime) finishPodList(l *listing, good bool) {
	if !good {
		r.wake()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.done = r.now()
}

// relists requires that each request for a relist of the pod is served at once, or at
// the end of the pod's running list, or by a list of all pods that began after the
// request. With fewer inspectors than pods a request may have to wait.
func (r *replay) relists() {
	rt := r.freeRun.runtime
	if !r.freeRun.listsPods || rt.inspectors < len(rt.history.pods) {
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
			r.t.Errorf("the relist of pod %s requested at %v was not made", r.uid, at)
		}
	}
}
