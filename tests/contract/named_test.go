package contract_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A subscriber has metrics under its name until it leaves. They show what it has not read,
// and that is logged once.
func TestContractNamedSlow(t *testing.T) {
	var log kit.Log
	inProcess(t, pipeline.Options{Logger: log.Logger()}, func(f *fixture) {
		sub, err := f.Subscribe(pipeline.SubscribeOptions{Name: "sleeper", Buffer: 3})
		kit.Must(f, err)
		for round := range 5 {
			f.Runtime.Set("p0", fmt.Sprintf("c%d=running", round))
			kit.Relist(1)
		}
		kit.Relist(60)
		const events, buffer = 1 + 4*3, 3
		of := func(name string) float64 { return kit.Metric(f.T, f.Metrics, "pleg_subscriber_"+name, "sleeper") }
		if queued, discarded, oldest := of("queue_length"), of("discarded_events_total"), of("oldest_event_seconds"); queued != buffer || discarded != events-buffer || oldest < 60 {
			f.Errorf("%v queued, %v discarded, the oldest %v s ago; want %d, %d, and a minute", queued, discarded, oldest, buffer, events-buffer)
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
		if repaired, delivered := of("repaired_pods_total"), of("delivered_events_total"); repaired != 1 || delivered < buffer {
			f.Errorf("%v pods repaired, %v events delivered; want 1, and %d or more", repaired, delivered, buffer)
		}
		sub.Close()
		synctest.Wait()
		if left := of("delivered_events_total"); left != 0 {
			f.Errorf("after the subscriber has left: %v events delivered, want no such metric", left)
		}
	})
}
