package differ_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func (b *bed) requirePending(t *testing.T, want ...pleg.PodUID) {
	t.Helper()
	if !slices.Equal(b.cache.pending, want) || !b.cache.observed.Equal(at(b.lists)) {
		t.Errorf("listing of %v observed with %v pending, want listing of %v with %v",
			b.cache.observed, b.cache.pending, at(b.lists), want)
	}
}

func TestListingCoversEveryPodThatIsNotPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		a, other := plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running")
		b.list(a, other)
		b.requirePending(t, "a", "b") // and nobody has taken a change
		b.take(t, "a", "Started(c)")
		b.take(t, "b", "Started(d)")
		b.settle("a", nil)
		b.list(a, other)
		b.requirePending(t, "b")
		b.settle("b", errInspect)
		b.list(other)
		b.requirePending(t, "a", "b")
	})
}

func TestPodFoundUnchangedInFlightIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "c=running"))
		b.take(t, "a", "Started(c)")
		b.list(plegtest.Pod("a", "c=running"))
		b.list(plegtest.Pod("a", "c=running"))
		if len(b.cache.touched) > 0 {
			t.Errorf("touched %v before the inspection ended", b.cache.touched)
		}
		b.settle("a", nil)
		if got := b.cache.touched["a"]; !got.Equal(at(3)) {
			t.Errorf("touched at %v, want the time of the newest listing %v", got, at(3))
		}
	})
}

func TestFailureTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "c=running"))
		b.take(t, "a", "Started(c)")
		b.list(plegtest.Pod("a", "c=running"))
		b.settle("a", errInspect)
		if len(b.cache.touched) > 0 {
			t.Errorf("touched %v after a failed inspection", b.cache.touched)
		}
	})
}

// A mark says that everything the listing showed has been told.
func TestMarksWhatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		requireMarks := func(want ...time.Time) {
			t.Helper()
			b.requireQuiet(t)
			if !slices.EqualFunc(b.marks, want, time.Time.Equal) {
				t.Errorf("marks = %v, want %v", b.marks, want)
			}
			b.marks = nil
		}
		b.list()
		requireMarks(at(1))
		b.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		b.take(t, "a", "Started(c)")
		b.take(t, "b", "Started(d)")
		requireMarks()
		b.settle("a", errInspect)
		b.settle("b", nil)
		requireMarks()
		b.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		b.take(t, "a", "Started(c)")
		b.list(plegtest.Pod("a", "c=exited"), plegtest.Pod("b", "d=running"))
		b.settle("a", nil)
		b.take(t, "a", "Died(c)")
		requireMarks()
		b.settle("a", nil)
		requireMarks(at(4))
	})
}

func TestNeverBlocksOnTheInspector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var pods []*pleg.Pod
		for n := range 100 {
			pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint(n)), "c=running"))
		}
		b.list(pods...)
		b.list(pods...) // nobody takes the changes, and yet these return
		b.list(pods[1:]...)
		for n := range 50 {
			b.take(t, pleg.PodUID(fmt.Sprint(n)), "Started(c)")
		}
		b.settle("0", nil)
		b.takeKnown(t, "0", "Died(c) Removed(c)") // overtakes what waits for an inspector
		b.list(pods[1:]...)
		for n := 50; n < 100; n++ {
			b.take(t, pleg.PodUID(fmt.Sprint(n)), "Started(c)")
		}
		b.requireQuiet(t)
	})
}

func TestEndsWhenTheListingsEndAndAllIsSettled(t *testing.T) {
	for name, waiting := range map[string]bool{"idle": false, "with changes nobody took": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "c=running"))
				b.take(t, "a", "Started(c)")
				if !waiting {
					b.take(t, "b", "Started(c)")
				}
				b.closed = true
				close(b.listings)
				close(b.observations)
				synctest.Wait()
				for _, changes := range []<-chan stage.Change{b.inspect, b.retry, b.known} {
					if c, ok := <-changes; ok {
						t.Errorf("change after the end: %+v", c)
					}
				}
				b.settle("a", nil) // must not block
				synctest.Wait()
				if len(b.ended) > 0 {
					t.Error("Run returned before the inspector was done")
				}
				close(b.settled)
				if err := <-b.ended; err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
			})
		})
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	d := newDiffer(t, &fakeCache{}, instrument.Registry{Registerer: reg})
	strange := plegtest.Pod("d", "")
	strange.Containers = []*pleg.Container{{ID: "x", State: 99}}
	pods := []*pleg.Pod{
		plegtest.Pod("a", "c=running d=exited e=created /s=running /t=running"),
		plegtest.Pod("b", "c=running /s=exited"),
		plegtest.Pod("c", "c=unknown /s=running"),
		plegtest.Pod("a", ""),
		strange,
	}
	want := map[string]float64{
		"pleg_running_pods": 2, "pleg_duplicate_pods_total": 1,
		"running": 2, "exited": 2, "created": 1, "unknown": 1,
	}
	d.Apply(stage.Listing{At: at(1), Pods: pods})
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			if len(m.GetLabel()) > 0 {
				name = m.GetLabel()[0].GetValue()
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if w, ok := want[name]; ok && value != w {
				t.Errorf("%s = %v, want %v", name, value, w)
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
