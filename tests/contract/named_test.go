package contract_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// series returns the metrics with a label "subscriber": for each of its values, the
// value of each metric by the part of its name that differs.
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

// Each subscriber has metrics under its name, until it leaves.
func TestContractNamed(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		first := f.subscribe(pipeline.SubscribeOptions{Name: "audit"})
		second := f.subscribe(pipeline.SubscribeOptions{Name: "audit", Filter: pleg.Filter{OmitSandboxes: true}})
		f.subscribe(pipeline.SubscribeOptions{})
		f.Runtime.Set("p0", "c=running /s=running")
		kit.Relist(1)
		got := series(f.T, f.Metrics)
		for name, delivered := range map[string]float64{"audit": 2, "audit-2": 1, "subscriber-1": 2} {
			s := got[name]
			if len(s) != 5 || s["delivered_events_total"] != delivered || s["discarded_events_total"] != 0 || s["queue_length"] != 0 {
				f.Errorf("series of %q: %v, want 5 with %v events delivered", name, s, delivered)
			}
		}
		if len(got) != 3 {
			f.Errorf("series of %d subscribers, want 3: %v", len(got), got)
		}
		second.Close()
		<-second.Done
		kit.Relist(1)
		if got := series(f.T, f.Metrics); got["audit-2"] != nil || got["audit"] == nil {
			f.Errorf("after one has left: %v", got)
		}
		first.Close()
		<-first.Done
	})
}

// The metrics of a subscriber show what it has not read, and that is logged once.
func TestContractNamedSlow(t *testing.T) {
	var log kit.Log
	inProcess(t, pipeline.Options{Logger: log.Logger()}, func(f *fixture) {
		sub, err := f.Subscribe(pipeline.SubscribeOptions{Name: "sleeper", Buffer: 3})
		if err != nil {
			f.Fatal(err)
		}
		for round := range 5 {
			f.Runtime.Set("p0", fmt.Sprintf("c%d=running", round))
			kit.Relist(1)
		}
		kit.Relist(60)
		const events, buffer = 1 + 4*3, 3
		s := series(f.T, f.Metrics)["sleeper"]
		if s["queue_length"] != buffer || s["discarded_events_total"] != events-buffer || s["oldest_event_seconds"] < 60 {
			f.Errorf("series %v: want %d queued, %d discarded, the oldest a minute ago", s, buffer, events-buffer)
		}
		if got := kit.Metric(f.T, f.Metrics, "pleg_discarded_events_total"); got != events-buffer {
			f.Errorf("%v events discarded, want %d", got, events-buffer)
		}
		log.RequireLines(f.T, 1, "subscriber is not reading")
		var got []pleg.Event
		for range buffer + 1 {
			got = append(got, <-sub.Events())
		}
		if last := got[buffer]; last.Type != pleg.PodSync || last.Missed != events-buffer {
			f.Errorf("what came last is %+v, want a PodSync for %d", last, events-buffer)
		}
		synctest.Wait()
		if s := series(f.T, f.Metrics)["sleeper"]; s["repaired_pods_total"] != 1 {
			f.Errorf("series %v: want one pod repaired", s)
		}
	})
}

// Close ends its subscription, from any goroutine, twice and while events are
// delivered. Other subscribers miss nothing.
func TestContractClose(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		f.setDelays()
		all := f.subscribe(pipeline.SubscribeOptions{})
		var closing sync.WaitGroup
		for i := range 4 * len(podLife) {
			v := f.subscribe(pipeline.SubscribeOptions{Buffer: 1 + i%3, Replay: i%2 == 0})
			if i%4 == 0 {
				v.Pause()
				defer v.Resume()
			}
			for range 2 {
				closing.Go(func() {
					time.Sleep(time.Duration(500+i*17) * time.Millisecond)
					v.Close()
				})
			}
			if i%4 != 0 {
				closing.Go(func() { <-v.Done })
			}
			if i%4 == 3 {
				f.live(1)
			}
		}
		closing.Wait()
		f.live(2)
		f.require("who stayed", all, f.subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: f.Epoch()}}))
	})
}
