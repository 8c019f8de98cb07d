package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodetest"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func containsWord(err error, word string) bool { return strings.Contains(err.Error(), word) }

// series returns the metrics that a label "subscriber" tells apart, by its
// value and the metric's name without what they share.
func series(t *testing.T, from prometheus.Gatherer) map[string]map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() != "subscriber" {
					continue
				}
				if found[label.GetValue()] == nil {
					found[label.GetValue()] = make(map[string]float64)
				}
				name := strings.TrimPrefix(family.GetName(), "pleg_subscriber_")
				found[label.GetValue()][name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return found
}

// Each subscriber has its series under its name, which are gone when it is.
func TestContractNamed(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		first := b.subscribe(pipeline.SubscribeOptions{Name: "audit"})
		second := b.subscribe(pipeline.SubscribeOptions{Name: "audit", OmitSandboxes: true})
		b.subscribe(pipeline.SubscribeOptions{})
		b.node.Set("p0", "c=running /s=running")
		b.relist(1)
		got := series(b.T, b.registry)
		for name, delivered := range map[string]float64{"audit": 2, "audit-2": 1, "subscriber-1": 2} {
			s := got[name]
			if len(s) != 5 || s["delivered_events_total"] != delivered || s["discarded_events_total"] != 0 || s["queue_length"] != 0 {
				b.Errorf("series of %q: %v, want 5 with %v events delivered", name, s, delivered)
			}
		}
		if len(got) != 3 {
			b.Errorf("series of %d subscribers, want 3: %v", len(got), got)
		}
		second.end()
		<-second.over
		b.relist(1)
		if got := series(b.T, b.registry); got["audit-2"] != nil || got["audit"] == nil {
			b.Errorf("after one has left: %v", got)
		}
		first.end()
		<-first.over
	})
}

// What a subscriber has not read shows in its metrics, and is logged once.
func TestContractNamedSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		b := newContractBed(t, pipeline.Options{
			SlowAfter: 10 * time.Second,
			Logger:    slog.New(slog.NewTextHandler(&logged, nil)),
		})
		sub, err := b.pipe.Subscribe(pipeline.SubscribeOptions{Name: "sleeper", Buffer: 3})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 5 {
			b.node.Set("p0", fmt.Sprintf("c%d=running", round))
			b.relist(1)
		}
		b.relist(60)
		const events, buffer = 1 + 4*3, 3
		s := series(t, b.registry)["sleeper"]
		if s["queue_length"] != buffer || s["discarded_events_total"] != events-buffer || s["oldest_event_seconds"] < 60 {
			t.Errorf("series %v: want %d queued, %d discarded, the oldest a minute ago", s, buffer, events-buffer)
		}
		if n := strings.Count(logged.String(), "has not read for a while"); n != 1 {
			t.Errorf("it was logged %d times, want once:\n%s", n, &logged)
		}
		var got []pleg.Event
		for range buffer + 1 {
			got = append(got, <-sub.Events())
		}
		if last := got[buffer]; last.Type != pleg.PodSync || last.Missed != events-buffer {
			t.Errorf("what came last is %+v, want a PodSync for %d", last, events-buffer)
		}
		synctest.Wait()
		if s := series(t, b.registry)["sleeper"]; s["repaired_pods_total"] != 1 {
			t.Errorf("series %v: want one pod repaired", s)
		}
	})
}

// Close ends the subscription of whoever calls it, from any goroutine, twice and
// while events are delivered; nobody else notices.
func TestContractClose(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(b *contractBed) {
		b.node.Delay = delays()
		all := b.subscribe(pipeline.SubscribeOptions{})
		var closing sync.WaitGroup
		for i := range 4 * len(contractLife) {
			v := b.subscribe(pipeline.SubscribeOptions{Buffer: 1 + i%3, Replay: i%2 == 0})
			if i%4 == 0 {
				v.pause()
				defer v.proceed()
			}
			for range 2 {
				closing.Go(func() {
					time.Sleep(time.Duration(500+i*17) * time.Millisecond)
					v.end()
				})
			}
			if i%4 != 0 {
				closing.Go(func() { <-v.over })
			}
			if i%4 == 3 {
				b.live(1)
			}
		}
		closing.Wait()
		b.live(2)
		if got := all.events(); !b.complete(got) {
			b.Errorf("who stayed missed something: %v", seqs(got))
		}
	})
}

// complete reports whether nothing but network events is left out.
func (b *contractBed) complete(events []pleg.Event) bool {
	v := b.subscribe(pipeline.SubscribeOptions{After: pipeline.Position{Epoch: b.pipe.Epoch()}})
	history, _, _ := b.untilSynced(v.events())
	if len(history) != len(events) {
		return false
	}
	for i := range history {
		if !equalEvents(history[i], events[i]) {
			return false
		}
	}
	return true
}

// When the pipeline ends, every channel is closed behind what was published;
// later subscribers are refused.
func TestContractCloseOfThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := nodetest.New()
		node.Set("p0", "c=running")
		pipe, err := pipeline.New(pipeline.Options{Runtime: node})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := pipe.Subscribe(pipeline.SubscribeOptions{Buffer: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := pipe.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v, want %v", err, context.DeadlineExceeded)
		}
		if ev := <-sub.Events(); ev.Type != pleg.ContainerStarted {
			t.Errorf("got %+v, want the event that was waiting", ev)
		}
		if ev, ok := <-sub.Events(); ok {
			t.Errorf("got %+v, want a closed channel", ev)
		}
		sub.Close()
		if _, err := pipe.Subscribe(pipeline.SubscribeOptions{}); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("Subscribe = %v, want %v", err, pipeline.ErrStopped)
		}
	})
}
