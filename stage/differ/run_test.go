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

func (f *fixture) requirePending(t *testing.T, want ...pleg.PodUID) {
	t.Helper()
	if !slices.Equal(f.cache.pending, want) || !f.cache.observed.Equal(at(f.lists)) {
		t.Errorf("listing of %v observed with %v pending, want listing of %v with %v",
			f.cache.observed, f.cache.pending, at(f.lists), want)
	}
}

func TestListingCoversEveryPodThatIsNotPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		a, other := plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running")
		f.list(a, other)
		f.requirePending(t, "a", "b") // and nobody has taken a change
		f.take(t, "a", "Started(c)")
		f.take(t, "b", "Started(d)")
		f.settle("a", nil)
		f.list(a, other)
		f.requirePending(t, "b")
		f.settle("b", errInspect)
		f.list(other)
		f.requirePending(t, "a", "b")
	})
}

func TestPodFoundUnchangedInFlightIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.list(plegtest.Pod("a", "c=running"))
		f.take(t, "a", "Started(c)")
		f.list(plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=running"))
		if len(f.cache.touched) > 0 {
			t.Errorf("touched %v before the inspection ended", f.cache.touched)
		}
		f.settle("a", nil)
		if got := f.cache.touched["a"]; !got.Equal(at(3)) {
			t.Errorf("touched at %v, want the time of the newest listing %v", got, at(3))
		}
	})
}

func TestFailureTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.list(plegtest.Pod("a", "c=running"))
		f.take(t, "a", "Started(c)")
		f.list(plegtest.Pod("a", "c=running"))
		f.settle("a", errInspect)
		if len(f.cache.touched) > 0 {
			t.Errorf("touched %v after a failed inspection", f.cache.touched)
		}
	})
}

// A mark says that everything the listing showed has been told.
func TestMarksWhatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		requireMarks := func(want ...time.Time) {
			t.Helper()
			f.requireQuiet(t)
			if !slices.EqualFunc(f.marks, want, time.Time.Equal) {
				t.Errorf("marks = %v, want %v", f.marks, want)
			}
			f.marks = nil
		}
		f.list()
		requireMarks(at(1))
		f.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		f.take(t, "a", "Started(c)")
		f.take(t, "b", "Started(d)")
		requireMarks()
		f.settle("a", errInspect)
		f.settle("b", nil)
		requireMarks()
		f.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		f.take(t, "a", "Started(c)")
		f.list(plegtest.Pod("a", "c=exited"), plegtest.Pod("b", "d=running"))
		f.settle("a", nil)
		f.take(t, "a", "Died(c)")
		requireMarks()
		f.settle("a", nil)
		requireMarks(at(4))
	})
}

func TestNeverBlocksOnTheInspector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var pods []*pleg.Pod
		for n := range 100 {
			pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint(n)), "c=running"))
		}
		f.list(pods...)
		f.list(pods...) // nobody takes the changes, and yet these return
		f.list(pods[1:]...)
		for n := range 50 {
			f.take(t, pleg.PodUID(fmt.Sprint(n)), "Started(c)")
		}
		f.settle("0", nil)
		f.takeKnown(t, "0", "Died(c) Removed(c)") // overtakes what waits for an inspector
		f.list(pods[1:]...)
		for n := 50; n < 100; n++ {
			f.take(t, pleg.PodUID(fmt.Sprint(n)), "Started(c)")
		}
		f.requireQuiet(t)
	})
}

func TestEndsWhenTheListingsEndAndAllIsSettled(t *testing.T) {
	for name, waiting := range map[string]bool{"idle": false, "with changes nobody took": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "c=running"))
				f.take(t, "a", "Started(c)")
				if !waiting {
					f.take(t, "b", "Started(c)")
				}
				f.closed = true
				close(f.listings)
				close(f.observations)
				synctest.Wait()
				for _, changes := range []<-chan stage.Change{f.inspect, f.retry, f.known} {
					if c, ok := <-changes; ok {
						t.Errorf("change after the end: %+v", c)
					}
				}
				f.settle("a", nil) // must not block
				synctest.Wait()
				if len(f.ended) > 0 {
					t.Error("Run returned before the inspector was done")
				}
				close(f.settled)
				if err := <-f.ended; err != nil {
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
