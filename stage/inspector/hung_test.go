package inspector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

const hungAfter = time.Second

// hangingRuntime has pods that hang, are slow, ignore their context, or answer at
// once, as their names say.
type hangingRuntime struct {
	mu   sync.Mutex
	busy map[pleg.PodUID]time.Time // since when
	// release ends the calls that ignore their context.
	release chan struct{}
}

func newHangingRuntime() *hangingRuntime {
	return &hangingRuntime{busy: make(map[pleg.PodUID]time.Time), release: make(chan struct{})}
}

func (r *hangingRuntime) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	r.mu.Lock()
	r.busy[pod.UID] = time.Now()
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.busy, pod.UID)
	}()
	var takes time.Duration
	switch kind, _, _ := strings.Cut(string(pod.UID), "-"); kind {
	case "uncancellable":
		<-r.release
		return plegtest.Status(pod), nil
	case "hung":
		takes = time.Hour
	case "slow":
		takes = 3 * time.Second
	}
	select {
	case <-time.After(takes):
		return plegtest.Status(pod), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hung returns the number of inspections that are older than hungAfter.
func (r *hangingRuntime) hung() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, since := range r.busy {
		if time.Since(since) > hungAfter {
			n++
		}
	}
	return n
}

func uids(kind string, n int) []pleg.PodUID {
	var all []pleg.PodUID
	for i := range n {
		all = append(all, pleg.PodUID(fmt.Sprintf("%s-%d", kind, i)))
	}
	return all
}

func one(uid pleg.PodUID) stage.Change { return change(1, plegtest.Pod(uid, "c=running")) }

// Hung inspections take at most half of the inspectors. If one more hangs, one of them
// is cancelled.
func TestHungPodsTakeHalfOfTheInspectors(t *testing.T) {
	for _, tc := range []struct{ inspectors, half int }{{1, 1}, {2, 1}, {3, 1}, {8, 4}, {9, 4}} {
		t.Run(fmt.Sprint(tc.inspectors), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newHangingRuntime()
				f := newFixture(t, r.PodStatus, inspector.Options{Inspectors: tc.inspectors, HungAfter: hungAfter})
				for _, uid := range uids("hung", tc.inspectors) {
					f.inspect <- one(uid)
				}
				time.Sleep(hungAfter + 1)
				synctest.Wait()
				if got := r.hung(); got != tc.half {
					t.Errorf("%d inspections hang, want %d", got, tc.half)
				}
				if got, want := len(f.settled), tc.inspectors-tc.half; got != want {
					t.Fatalf("%d settled, want %d", got, want)
				}
				for range tc.inspectors - tc.half {
					s := <-f.settled
					if s.Hung != hungAfter || !errors.Is(s.Err, context.Canceled) || !strings.Contains(s.Err.Error(), "no answer for 1s, cancelled") {
						t.Errorf("settled %+v, want hung for %v, and why it was cancelled", s, hungAfter)
					}
					if c, _ := f.cache.get(s.UID); !errors.Is(c.err, s.Err) {
						t.Errorf("cache has %+v, want the error", c)
					}
				}
				if tc.inspectors > 1 {
					if s, _, ok := f.do(one("healthy")); s.Err != nil || !ok {
						t.Errorf("a healthy pod settled with %v", s.Err)
					}
				}
			})
		})
	}
}

func TestWhichHungPodIsCancelled(t *testing.T) {
	const inspectors = 4 // two may hang
	for name, tc := range map[string]struct {
		apart time.Duration // between the starts of three
		want  pleg.PodUID
	}{
		"the last, while the others have not had their time": {apart: time.Second, want: "hung-2"},
		"the oldest, once it has had its time":               {apart: 2 * time.Second, want: "hung-0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newHangingRuntime().PodStatus, inspector.Options{Inspectors: inspectors, HungAfter: hungAfter})
				for _, uid := range uids("hung", 3) {
					f.inspect <- one(uid)
					time.Sleep(tc.apart)
				}
				if s := <-f.settled; s.UID != tc.want {
					t.Errorf("cancelled pod %s, want %s", s.UID, tc.want)
				}
			})
		})
	}
}

// On a runtime that is slow for every pod, half of the inspectors make progress. If the
// oldest inspection were always cancelled, none would end.
func TestSlowPodsAreInspectedAlthoughAllSeemToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 100
		f := newFixture(t, newHangingRuntime().PodStatus, inspector.Options{Inspectors: 8, HungAfter: hungAfter})
		began := time.Now()
		go func() {
			for _, uid := range uids("slow", pods) {
				f.inspect <- one(uid)
			}
		}()
		done := 0
		for range pods {
			if s := <-f.settled; s.Err == nil {
				done++
				<-f.outcomes
			}
		}
		// Four at once, in three seconds each.
		if took := time.Since(began); done < 4*int(took/(3*time.Second)) {
			t.Errorf("%d of %d pods inspected in %v, want four every 3 s", done, pods, took)
		}
	})
}

// Retries share the places of hung inspections and leave the others to healthy pods.
func TestRetriesShareTheHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHangingRuntime()
		f := newFixture(t, r.PodStatus, inspector.Options{Inspectors: 8, HungAfter: hungAfter})
		retries := func(uid pleg.PodUID) bool {
			synctest.Wait()
			c := one(uid)
			c.Hung = 1
			select {
			case f.retry <- c:
				return true
			default:
				return false
			}
		}
		f.inspect <- one("hung-a")
		if time.Sleep(hungAfter); !retries("hung-0") || !retries("hung-1") || !retries("hung-2") {
			t.Error("a retry was refused although three places for hung inspections are free")
		}
		if retries("hung-3") {
			t.Error("more than half of the inspectors are with hung inspections and retries")
		}
		for n := range 20 {
			if s, _, ok := f.do(one(pleg.PodUID(fmt.Sprint("healthy-", n)))); s.Err != nil || !ok {
				t.Errorf("a healthy pod settled with %v", s.Err)
			}
		}
		// None of the retries is cancelled for another, and none lasts long.
		f.inspect <- one("hung-b")
		if s := <-f.settled; s.UID != "hung-b" {
			t.Errorf("cancelled pod %s, want the one that hung last", s.UID)
		}
		for range 3 {
			if s := <-f.settled; !strings.HasPrefix(string(s.UID), "hung-") || s.Hung != 4*hungAfter {
				t.Errorf("settled %+v, want a retry after %v", s, 4*hungAfter)
			}
		}
	})
}

// The first few retries end soon, the further ones may take longer and longer.
func TestTimeoutOfRetriesGrows(t *testing.T) {
	for hung, want := range []time.Duration{0: timeout, 1: 4 * time.Second, 4: 4 * time.Second, 5: 8 * time.Second, 6: timeout, 60: timeout} {
		if want == 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, newHangingRuntime().PodStatus, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
			c := one("hung")
			c.Hung = hung
			f.retry <- c
			if s := <-f.settled; s.Hung != want || !errors.Is(s.Err, context.DeadlineExceeded) {
				t.Errorf("after %d that hung, settled %+v, want the end after %v", hung, s, want)
			}
		})
	}
}

func TestLateErrorCountsAsHung(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		hung  bool
	}{"promptly": {hungAfter - 1, false}, "late": {hungAfter, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
					time.Sleep(tc.after)
					return nil, errInspect
				}, inspector.Options{HungAfter: hungAfter})
				if s, _, _ := f.do(one("a")); s.Hung > 0 != tc.hung || !errors.Is(s.Err, errInspect) {
					t.Errorf("settled %+v, want it to count as hung: %v", s, tc.hung)
				}
			})
		})
	}
}

// A call that ignores its context takes no inspector's place.
func TestUncancellableCallIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inspectors = 2
		reg := prometheus.NewPedanticRegistry()
		r := newHangingRuntime()
		f := newFixture(t, r.PodStatus, inspector.Options{
			Inspectors: inspectors, HungAfter: hungAfter, Metrics: instrument.Registry{Registerer: reg},
		})
		for _, uid := range uids("uncancellable", 10) {
			f.inspect <- one(uid)
		}
		for range 10 {
			if s := <-f.settled; s.Err == nil || s.Hung == 0 || !strings.Contains(s.Err.Error(), "has not returned") {
				t.Errorf("settled %+v, want hung and not returned", s)
			}
		}
		if s, _, ok := f.do(one("healthy")); s.Err != nil || !ok {
			t.Errorf("a healthy pod settled with %v", s.Err)
		}
		requireGauge(t, reg, "pleg_abandoned_inspections", 10)
		requireGauge(t, reg, "pleg_inspections_in_flight", 0)
		// The pod is not inspected twice at once.
		if s, _, _ := f.do(one("uncancellable-0")); s.Hung == 0 || s.Err == nil {
			t.Errorf("settled %+v, want hung: the call before has not returned", s)
		}
		f.finish()
		synctest.Wait()
		if len(f.ended) > 0 {
			t.Error("Run returned before all calls had")
		}
		close(r.release)
		if err := <-f.ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if len(f.settled) > 0 {
			t.Errorf("settled %+v, which had been settled before", <-f.settled)
		}
	})
}

func TestAbandonedPodIsInspectedOnceItsCallHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHangingRuntime()
		f := newFixture(t, r.PodStatus, inspector.Options{Inspectors: 1, HungAfter: hungAfter})
		f.do(one("uncancellable"))
		close(r.release)
		synctest.Wait()
		if s, _, ok := f.do(one("uncancellable")); s.Err != nil || !ok {
			t.Errorf("settled %+v, want an outcome", s)
		}
	})
}

// requireGauge wants a metric to have a value.
func requireGauge(t *testing.T, reg prometheus.Gatherer, name string, want float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, f := range families {
		if f.GetName() == name {
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("%s = %v, want %v", name, got, want)
			}
			return
		}
	}
	t.Errorf("no metric %s", name)
}
