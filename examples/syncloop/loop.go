package main

import (
	"context"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

const (
	// firstBackoff doubles up to lastBackoff while the pipeline is unhealthy, as
	// in the kubelet.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// resyncPeriod is the time between two syncs of all pods. They find what no
	// event reports, such as a failed probe.
	resyncPeriod = 10 * time.Second
)

// handler acts on pods.
type handler interface {
	// Sync brings a pod into its desired state.
	Sync(pod *pipeline.PodStatus)
	// CleanUp removes what an exited container has left behind.
	CleanUp(ev pipeline.Event)
	// Skip gets the reason why the loop does nothing now.
	Skip(why error)
}

type loop struct {
	healthy func() (bool, error)
	cache   *pipeline.Cache
	events  <-chan pipeline.Event
	handler handler
}

// run acts on events until ctx ends, and returns the cause of ctx.
func (l *loop) run(ctx context.Context) error {
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	backoff := firstBackoff
	for {
		if ok, why := l.healthy(); !ok {
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
			l.handle(ev)
		case <-resync.C:
			for _, pod := range l.cache.List() {
				l.sync(pod.UID)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle acts on one event. The removal of a container needs no sync: the sync after its
// exit did the work.
func (l *loop) handle(ev pipeline.Event) {
	if ev.Type != pipeline.ContainerRemoved {
		l.sync(ev.PodUID)
	}
	if ev.Type == pipeline.ContainerDied && !ev.Sandbox {
		l.handler.CleanUp(ev)
	}
}

// sync syncs a pod with its newest status, which is at least as new as the event. It
// skips a pod that is gone or whose last inspection failed: another event follows the
// next successful inspection.
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
