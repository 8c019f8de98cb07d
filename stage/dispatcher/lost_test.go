package dispatcher_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A subscriber that does not read keeps nothing of most pods that lived meanwhile. Once it
// reads again, a Gap counts what it missed, and the present state follows.
func TestSubscriberOfTooManyMissedPodsStartsAgain(t *testing.T) {
	testDispatcher(t, func(t *testing.T, f *fixture) {
		s := f.subscribe(t, pleg.SubscribeOptions{Buffer: 2})
		const pods = 10_000
		f.publish("stays", "Started(c)")
		for n := range pods {
			uid := pleg.PodUID(fmt.Sprint(n))
			f.in <- outcome(uid, "Started(c)")
			f.in <- outcome(uid, "Died(c)")
			last := outcome(uid, "Removed(c)")
			last.Pod = nil
			f.in <- last
		}
		time.Sleep(time.Second)
		synctest.Wait()
		read := 0
		var got []pleg.EventType
		for ev := range s.Events() {
			if ev.Type != pleg.Gap && got == nil {
				read++
				continue
			}
			got = append(got, ev.Type)
			if ev.Type == pleg.Gap && (ev.Missed != uint64(3*pods+1-read) || ev.Reason != pleg.HistoryTooShort) {
				t.Errorf("%+v, want the number of all that was not read", ev)
			}
			if ev.Type == pleg.ContainerStarted && (!ev.Replayed || ev.PodUID != "stays") {
				t.Errorf("%+v, want the present state", ev)
			}
			if ev.Type == pleg.Synced {
				break
			}
		}
		if want := []pleg.EventType{pleg.Gap, pleg.ContainerStarted, pleg.Synced}; !slices.Equal(got, want) || read != 2 {
			t.Errorf("after %d events of the buffer came %v, want %v after 2", read, got, want)
		}
		f.publish("stays", "Died(c)")
		if ev := <-s.Events(); ev.Type != pleg.ContainerDied || ev.PodUID != "stays" {
			t.Errorf("event %+v, want what came next", ev)
		}
	})
}
