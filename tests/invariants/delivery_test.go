package invariants_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Subscribers that never read delay neither the pipeline nor other subscribers.
func TestInvariantNeverBlocks(t *testing.T) {
	const stopped, pods = 50, 20
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		for range stopped {
			r.Events(t, 1) // and never read
		}
		events := r.Events(t, 0)
		r.Start(t)
		synctest.Wait()
		for n := range 10 {
			var want []string
			for p := range pods {
				uid := fmt.Sprint(p)
				words, step := "c=running", "Started(c)"
				if n%2 == 1 {
					words, step = "c=exited", "Died(c)"
				}
				r.Runtime.Set(pleg.PodUID(uid), words)
				want = append(want, uid, step)
			}
			kit.Relist(1)
			kit.RequireEvents(t, events, want...)
		}
		if listed := r.Runtime.Counts().Lists; listed != 11 {
			t.Errorf("lists = %d, want 11: one a second", listed)
		}
		if err := r.Stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	})
}

// A subscriber that reads again gets one PodSync for each pod with missed events, and
// their numbers add up to the events that were published.
func TestInvariantNothingSilentlyLost(t *testing.T) {
	const pods, buffer = 10, 5
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		slow, quick := r.Events(t, buffer), r.Events(t, 0)
		r.Start(t)
		synctest.Wait()
		published := make(map[pleg.PodUID]uint64)
		for n := range 6 {
			kit.Fill(r.Runtime, pods, "c="+[]string{"running", "exited"}[n%2])
			kit.Relist(1)
			for _, ev := range kit.Drain(quick) {
				published[ev.PodUID]++
			}
		}
		accounted, repairs := readRepairs(t, slow)
		for _, uid := range kit.UIDs(pods) {
			if accounted[uid] != published[uid] || repairs[uid] != 1 {
				t.Errorf("pod %s: %d events of %d accounted for by %d repairs, want all and 1", uid, accounted[uid], published[uid], repairs[uid])
			}
		}
		r.Runtime.Set("p0", "d=running c=exited")
		kit.Relist(1)
		kit.RequireEvents(t, slow, "p0", "Started(d)")
	})
}

// readRepairs reads all events and returns for each pod the number of events that they
// account for, delivered or missed, and the number of repairs.
func readRepairs(t *testing.T, events <-chan pleg.Event) (accounted map[pleg.PodUID]uint64, repairs map[pleg.PodUID]int) {
	t.Helper()
	accounted, repairs = make(map[pleg.PodUID]uint64), make(map[pleg.PodUID]int)
	var seq uint64
	for {
		time.Sleep(20 * time.Millisecond) // until the dispatcher notices that the subscriber reads again
		synctest.Wait()
		if len(events) == 0 {
			return accounted, repairs
		}
		ev := <-events
		if ev.Seq <= seq {
			t.Errorf("%+v comes after number %d", ev, seq)
		}
		seq = ev.Seq
		if ev.Missed == 0 {
			accounted[ev.PodUID]++
			continue
		}
		if ev.Type != pleg.PodSync {
			t.Errorf("event %+v stands for others, want a PodSync", ev)
		}
		accounted[ev.PodUID] += ev.Missed
		repairs[ev.PodUID]++
	}
}
