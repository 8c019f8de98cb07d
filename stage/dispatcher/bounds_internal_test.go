package dispatcher

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// The present state has nothing of a pod that is gone.
func TestPresentForgetsGonePods(t *testing.T) {
	p := make(present)
	for seq, uid := range []pleg.PodUID{"a", "b"} {
		p.apply(pleg.Event{Seq: uint64(seq), Type: pleg.ContainerStarted, PodUID: uid, ContainerID: "c"})
		p.settle(uid, false, nil, true)
	}
	p.settle("a", true, nil, true)
	if p["a"] != nil || p["b"] == nil {
		t.Errorf("the present state has %v, want only pod b", p)
	}
}

// While a feeder waits for the subscriber, at most a buffer of events is pending. What
// comes after that counts as missed, one entry for each pod.
func TestPendingIsBounded(t *testing.T) {
	const buffer, events = 3, 10
	s := newSubscription(pleg.SubscribeOptions{Buffer: buffer}, filter.Filter{}, nil)
	s.startFeed(make([]pleg.Event, 1), 0)
	kept := 0
	for range events {
		if s.offer(&pleg.Event{Type: pleg.ContainerStarted, PodUID: "a"}, 0) {
			kept++
		}
	}
	if kept != buffer || len(s.pending) != buffer || s.missed.order.Len() != 1 || s.discarded != events-buffer {
		t.Errorf("kept %d, pending %d, pods missed %d, discarded %d; want %d, %d, 1, %d",
			kept, len(s.pending), s.missed.order.Len(), s.discarded, buffer, buffer, events-buffer)
	}
}

// Nothing is left of subscribers that have gone.
func TestSubscribersLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{History: 1, SlowAfter: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		in, ended := make(chan stage.Outcome), make(chan error, 1)
		go func() { ended <- d.Run(in, nil) }()
		for _, selector := range []string{"app=web", "app=web", "app=mail"} {
			s, err := d.Subscribe(pleg.SubscribeOptions{Name: "audit", Filter: pleg.Filter{Selector: selector}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s.Close()
		}
		synctest.Wait()
		if len(d.selectors) > 0 || len(d.labels.taken) > 0 || len(d.subscribers) > 0 {
			t.Errorf("left: %v, %v, %v", d.selectors, d.labels, d.subscribers)
		}
		close(in)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
