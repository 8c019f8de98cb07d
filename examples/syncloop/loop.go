package main

import (
	"context"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

const (
	// firstBackoff doubles up to lastBackoff while the generator is unhealthy,
	// as in the kubelet.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// resyncPeriod is the time between two looks at every pod: what no event
	// tells, such as a probe that failed, is found then.
	resyncPeriod = 10 * time.Second
)

// handler does what is to be done.
type handler interface {
	// Sync brings a pod from the state it is in to the one it should be in.
	Sync(pod *pipeline.PodStatus)
	// CleanUp removes what a dead container has left.
	CleanUp(ev pipeline.Event)
	// Skip is told why nothing is done for now.
	Skip(why error)
}

// node is the part of a pipeline that says whether it can be believed.
type node interface {
	Healthy() (bool, error)
}

type loop struct {
	node    node
	cache   *pipeline.Cache
	events  <-chan pipeline.Event
	handler handler
}

// run acts on events until ctx or the events end, and returns the cause of ctx.
func (l *loop) run(ctx context.Context) error {
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	backoff := firstBackoff
	for {
		if ok, why := l.node.Healthy(); !ok {
			l.handler.Skip(why)
			if err := wait(ctx, backoff); err != nil {
				return err
			}
			backoff = min(2*backoff, lastBackoff)
			continue
		}
		backoff = firstBackoff
		select {
		case ev, ok := <-l.events:
			if !ok {
				return context.Cause(ctx)
			}
			l.heed(ev)
		case <-resync.C:
			for _, pod := range l.cache.List() {
				l.sync(pod.UID)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// heed acts on one event. A removed container changes nothing that a sync could
// act on: its end came before it.
func (l *loop) heed(ev pipeline.Event) {
	if ev.Type != pipeline.ContainerRemoved {
		l.sync(ev.PodUID)
	}
	if ev.Type == pipeline.ContainerDied && !ev.Sandbox {
		l.handler.CleanUp(ev)
	}
}

// sync syncs a pod with its newest status, which is at least as new as the event
// in hand. A pod whose last inspection failed, or that is gone, is left to the
// event that will follow.
func (l *loop) sync(uid pipeline.PodUID) {
	if status, err := l.cache.Get(uid); err == nil && status.Name != "" {
		l.handler.Sync(status)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
