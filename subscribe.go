package pipeline

import (
	"context"
	"iter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// SubscribeOptions configure one subscriber: see [pleg.SubscribeOptions].
type SubscribeOptions = pleg.SubscribeOptions

// Subscription is a place in the log of the pipeline: see [pleg.Subscription].
type Subscription = pleg.Subscription

// Subscribe adds a subscriber, before or while the pipeline runs. It gets every
// event published after Subscribe has returned. Subscribe does not block and is
// safe for concurrent use. The error wraps [pleg.ErrInvalidOption] if an
// option is bad, and is [pleg.ErrStopped] once Run has returned.
func (p *Pipeline) Subscribe(o SubscribeOptions) (Subscription, error) {
	sub, err := p.dispatcher.Subscribe(o)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

var _ node.Pipeline = (*Pipeline)(nil)

// Watch subscribes once the range begins, and ranges over the events as [pleg.Subscription] does
// with All. It ends with an error that wraps [pleg.ErrInvalidOption] if an option is bad. A
// subscriber that is to miss nothing of a pipeline that does not run yet calls
// [Pipeline.Subscribe].
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

// PodStatus returns the status of a pod as [cache.Cache.Get] does or, unless newerThan is zero,
// as [cache.Cache.GetNewerThan] does.
func (p *Pipeline) PodStatus(ctx context.Context, uid pleg.PodUID, newerThan time.Time) (*pleg.PodStatus, error) {
	if newerThan.IsZero() {
		return p.cache.Get(uid)
	}
	return p.cache.GetNewerThan(ctx, uid, newerThan)
}

// lastStatus returns the newest good status of a pod, which has only the UID if the pod is gone.
func (p *Pipeline) lastStatus(uid pleg.PodUID) *pleg.PodStatus {
	if e, _ := p.cache.Entry(uid); e.Last != nil {
		return e.Last
	}
	return &pleg.PodStatus{UID: uid}
}
