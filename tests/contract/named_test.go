package contract_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Subscribers have metrics under their name until the last of that name leaves. They show what
// the slowest has not read, which is logged once, and what the log no longer had when it read.
func TestContractNamedSlow(t *testing.T) {
	var log kit.Log
	inProcess(t, pipeline.Options{Logger: log.Logger(), History: 3}, func(f *fixture) {
		sub, err := f.Subscribe(pipeline.SubscribeOptions{Name: "sleeper"})
		kit.Must(f, err)
		namesake, err := f.Subscribe(pipeline.SubscribeOptions{Name: "sleeper"})
		kit.Must(f, err)
		for round := range 5 {
			f.Runtime.Set("p0", fmt.Sprintf("c%d=running", round))
			kit.Relist(1)
			kit.Read(f, namesake)
		}
		kit.Relist(60)
		const events = 1 + 4*3
		of := func(name string) float64 { return kit.Metric(f.T, f.Metrics, "pleg_subscriber_"+name, "sleeper") }
		if lag, age := of("lag_events"), of("lag_seconds"); lag != events || age < 60 {
			f.Errorf("%v events are unread, the oldest for %v s; want %d and a minute", lag, age, events)
		}
		log.RequireLines(f.T, 1, "subscriber is not reading")
		got := kit.Read(f, sub)
		if gap := got[0]; gap.Type != pleg.Gap || gap.Missed != events || len(got) != 3 {
			f.Errorf("got %v, want a Gap for %d, one container and Synced", got, events)
		}
		if gaps, missed, lag := of("gaps_total"), of("missed_events_total"), of("lag_events"); gaps != 1 || missed != events || lag != 0 {
			f.Errorf("%v gaps skipped %v events, %v are unread; want 1, %d and 0", gaps, missed, lag, events)
		}
		if got := kit.Metric(f.T, f.Metrics, "pleg_discarded_events_total"); got != events {
			f.Errorf("%v events missed, want %d", got, events)
		}
		sub.Close()
		synctest.Wait()
		if left := of("gaps_total"); left != 1 {
			f.Errorf("after one of two subscribers has left: %v gaps, want 1", left)
		}
		namesake.Close()
		synctest.Wait()
		if left := of("gaps_total"); left != 0 {
			f.Errorf("after the subscriber has left: %v gaps, want no such metric", left)
		}
	})
}
