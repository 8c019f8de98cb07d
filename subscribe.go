package pipeline

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Subscribe adds a subscriber, before or while the pipeline runs. The subscriber gets every event
// that enters the log after Subscribe has returned, and closes the subscription when it no longer reads.
// Subscribe does not block. The error wraps [pleg.ErrInvalidOption] if an option is bad, and is
// [pleg.ErrStopped] once Run has returned.
func (p *Pipeline) Subscribe(o pleg.SubscribeOptions) (pleg.Subscription, error) {
	sub, err := p.dispatcher.Subscribe(o)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

var _ node.Pipeline = (*Pipeline)(nil)

// Watch ranges over the events of a subscription: it subscribes when the range begins and closes
// when the range ends. An error of [Pipeline.Subscribe] ends the range. To miss no event of a
// pipeline that is about to run, use Subscribe.
func (p *Pipeline) Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		sub, err := p.Subscribe(o)
		if err != nil {
			yield(pleg.Event{}, err)
			return
		}
		defer sub.Close()
		sub.All(ctx)(yield)
	}
}

// PodStatus returns the status of a pod. If newerThan is zero, it calls Get of [cache.Reader] and
// does not block; otherwise it calls GetNewerThan, which may. The error wraps the error of the
// method and names the pod.
func (p *Pipeline) PodStatus(ctx context.Context, uid pleg.PodUID, newerThan time.Time) (*pleg.PodStatus, error) {
	status, err := p.cache.Get(uid)
	if !newerThan.IsZero() {
		status, err = p.cache.GetNewerThan(ctx, uid, newerThan)
	}
	if err != nil {
		err = fmt.Errorf("status of pod %s: %w", uid, err)
	}
	return status, err
}

// RelistPod requests a list of the pod as [Pipeline.RequestRelist] does, and returns the result of
// [Pipeline.PodStatus] for the present time: it blocks until the pod is listed, and inspected if it
// changed, or ctx ends. If the list fails, RelistPod waits for the next list.
func (p *Pipeline) RelistPod(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	now := time.Now()
	time.Sleep(time.Nanosecond) // the list must begin after now, on a fake clock too
	p.RequestRelist(uid)
	return p.PodStatus(ctx, uid, now)
}

// Pods returns the cache's entries of the pods with these UIDs, or of all pods if no UID is given,
// sorted by UID. A pod that is unknown or gone is left out. The error wraps [pleg.ErrNotSynced]
// until the first list of all pods is committed. Pods does not block.
//
// The pods contain the changes of every event up to the position. A subscriber with After that position
// gets all later events and no replay: together they miss nothing. A pod may be newer than the position:
// an event can then repeat a change that the list already contains.
func (p *Pipeline) Pods(_ context.Context, uids ...pleg.PodUID) ([]cache.Entry, pleg.Position, error) {
	if !p.cache.IsSynced() {
		return nil, pleg.Position{}, fmt.Errorf("list pods: %w", pleg.ErrNotSynced)
	}
	position := p.dispatcher.Position() // taken before the cache is read: the cache is written before the event
	if len(uids) == 0 {
		return p.cache.List(), position, nil
	}
	var entries []cache.Entry
	for _, uid := range slices.Compact(slices.Sorted(slices.Values(uids))) {
		if e, ok := p.cache.Entry(uid); ok {
			entries = append(entries, e)
		}
	}
	return entries, position, nil
}

// lastStatus returns the newest good status of a pod; it contains only the UID if the pod is gone.
func (p *Pipeline) lastStatus(uid pleg.PodUID) *pleg.PodStatus {
	if e, _ := p.cache.Entry(uid); e.Last != nil {
		return e.Last
	}
	return &pleg.PodStatus{UID: uid}
}
