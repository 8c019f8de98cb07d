package pipeline

import (
	"context"
	"iter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

// SubscribeOptions configure one subscriber: see [pleg.SubscribeOptions].
type SubscribeOptions = pleg.SubscribeOptions

// Subscribe adds a subscriber, before or while the pipeline runs. It gets every
// event published after Subscribe has returned. Subscribe does not block and is
// safe for concurrent use. The error wraps [pleg.ErrInvalidOption] if an
// option is bad, and is [pleg.ErrStopped] once Run has returned.
func (p *Pipeline) Subscribe(o SubscribeOptions) (*Subscription, error) {
	end, err := p.dispatcher.Subscribe(o)
	if err != nil {
		return nil, err
	}
	return &Subscription{end}, nil
}

// Subscription is one subscriber's end of the pipeline.
//
// Events of one pod arrive in the order in which its states were seen, and sequence
// numbers only grow. A subscriber that does not read delays nobody. Once its buffer
// is full, events are discarded until it reads again. It then gets one PodSync for
// each pod with discarded events, with their number in Missed, and after that the
// events that follow. If these are too many pods, it gets a Gap and the present state.
type Subscription struct {
	end *dispatcher.Subscription
}

// Name returns the subscriber's name.
func (s *Subscription) Name() string { return s.end.Name() }

// Events returns the channel on which the events arrive. It is closed soon after
// [Subscription.Close] and when the pipeline ends. Events that wait in it can still
// be read then.
func (s *Subscription) Events() <-chan pleg.Event { return s.end.Events() }

// All ranges over the events until the subscription or ctx ends. It does not
// close the subscription.
func (s *Subscription) All(ctx context.Context) iter.Seq[pleg.Event] {
	return func(yield func(pleg.Event) bool) {
		for {
			select {
			case ev, ok := <-s.Events():
				if !ok || !yield(ev) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// Close ends the subscription. It does not block and may be called by any goroutine,
// more than once, and while events are delivered.
func (s *Subscription) Close() { s.end.Close() }

var _ node.Pipeline = (*Pipeline)(nil)

// Watch subscribes once the range begins, and ranges over the events until ctx ends; the
// error is nil then. If an option is bad, the range ends with an error that wraps
// [pleg.ErrInvalidOption], and once Run has returned, with [pleg.ErrStopped]. A subscriber that
// is to miss nothing of a pipeline that does not run yet calls [Pipeline.Subscribe].
func (p *Pipeline) Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		sub, err := p.Subscribe(o)
		if err != nil {
			yield(pleg.Event{}, err)
			return
		}
		defer sub.Close()
		for ev := range sub.All(ctx) {
			if !yield(ev, nil) {
				return
			}
		}
		if ctx.Err() == nil {
			yield(pleg.Event{}, pleg.ErrStopped)
		}
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
