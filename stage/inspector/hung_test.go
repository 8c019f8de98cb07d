package inspector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const hungAfter = time.Second

// testHanging runs a test in a bubble, with the inspector of a runtime whose pods hang, ignore
// their context until f.release is closed, or answer at once, as their names say.
func testHanging(t *testing.T, inspectors int, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFixture(t, hanging(release), inspector.Options{Inspectors: inspectors, HungAfter: hungAfter})
		f.release = release
		test(t, f)
	})
}

func hanging(release <-chan struct{}) fakeRuntime {
	return func(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
		fault := plegtest.Fail(nil)
		switch kind, _, _ := strings.Cut(string(pod.UID), "-"); kind {
		case "uncancellable":
			fault = plegtest.Block(release)
		case "hung":
			fault = plegtest.Hang
		}
		return plegtest.Status(pod), fault(ctx)
	}
}

func uids(kind string, n int) []pleg.PodUID {
	var all []pleg.PodUID
	for i := range n {
		all = append(all, pleg.PodUID(fmt.Sprintf("%s-%d", kind, i)))
	}
	return all
}

func one(uid pleg.PodUID) stage.Change { return change(1, plegtest.Pod(uid, "c=running")) }

// hang offers pods, one after the other, until the test ends.
func (f *fixture) hang(t *testing.T, uids ...pleg.PodUID) {
	kit.Run(t, func(ctx context.Context) error {
		for _, uid := range uids {
			select {
			case f.inspect <- one(uid):
			case <-ctx.Done():
			}
		}
		return plegtest.Hang(ctx)
	})
}

// Inspectors is a bound while nothing is older than HungAfter. An inspection that hangs takes no
// slot: the bound is twice as high then.
func TestHungInspectionsTakeNoSlots(t *testing.T) {
	testHanging(t, 2, func(t *testing.T, f *fixture) {
		want := func(step string, slots int) {
			t.Helper()
			for n := range slots {
				if !f.accepts(one(pleg.PodUID("hung-" + step + fmt.Sprint(n)))) {
					t.Errorf("%s: %d more began, want %d", step, n, slots)
				}
			}
			if f.accepts(one("hung-more")) {
				t.Errorf("%s: more than %d began", step, slots)
			}
		}
		f.inspect <- one("hung-0")
		time.Sleep(hungAfter / 2)
		f.do(one("healthy"))
		want("before it hangs", 1)
		time.Sleep(hungAfter/2 - 1)
		want("1 ns before it hangs", 0)
		time.Sleep(time.Nanosecond)
		want("once it hangs", 1)
	})
}

// An inspection that took more than half of the age of an older inspection says nothing about it:
// both may wait for the same thing.
func TestWhatIsOvertaken(t *testing.T) {
	for name, tc := range map[string]struct {
		second time.Duration // begins a second later and takes this long
		want   float64
	}{"in half of the age": {time.Second, 1}, "in more": {time.Second + 1, 0}} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
			f.runtime.SetPodFault("first", plegtest.Hang)
			f.runtime.SetPodFault("second", plegtest.Delay(tc.second))
			f.runtime.SetPodFault("third", plegtest.Delay(5*time.Second))
			f.inspect <- one("first")
			time.Sleep(time.Second)
			f.do(one("second"))
			f.requireMetric(t, "pleg_hung_inspections", tc.want)
			f.do(one("third")) // too slow to say anything
			f.requireMetric(t, "pleg_hung_inspections", tc.want)
		})
	}
}

// If every slot is taken and nothing ends, the youngest inspection is cancelled each four times
// HungAfter, and the oldest never: a runtime that serves its calls in order works on it. If the
// runtime answered before, it is more likely to be slow, and few are cancelled.
func TestCancelledWhileNothingEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		before int // healthy pods
		want   map[time.Duration]pleg.PodUID
	}{
		"runtime that answered before": {before: 16, want: map[time.Duration]pleg.PodUID{
			6 * time.Second: "hung-3", 10 * time.Second: "", 11 * time.Second: "",
		}},
		"runtime that answered little": {before: 1, want: map[time.Duration]pleg.PodUID{10 * time.Second: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			testHanging(t, 2, func(t *testing.T, f *fixture) {
				for _, uid := range uids("healthy", tc.before) {
					f.do(one(uid))
				}
				began := time.Now()
				f.hang(t, uids("hung", 20)...)
				for range len(tc.want) {
					s := f.end()
					after := time.Since(began)
					want, ok := tc.want[after]
					switch cancelled := strings.Contains(s.Err.Error(), "none ends"); {
					case !ok, s.Hung == cancelled, s.Late != cancelled, cancelled != (want != ""), want != "" && s.UID != want:
						t.Errorf("settled %+v after %v, want %q", s, after, want)
					}
					for len(f.settled) > 0 {
						<-f.settled
					}
				}
			})
		})
	}
}

// Few inspections that are not hung are cancelled, however long nothing ends, and however many
// ended before.
func TestFewAreCancelledWhileNothingEnds(t *testing.T) {
	for before, most := range map[int]int{0: 0, 2000: 128 / 20} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, hanging(nil), inspector.Options{Inspectors: 2, HungAfter: hungAfter / 100})
			for range before {
				f.do(one("healthy"))
			}
			f.hang(t, uids("hung", 100)...)
			time.Sleep(timeout - 1)
			synctest.Wait()
			n := 0
			for len(f.settled) > 0 {
				if s := <-f.settled; !s.Hangs && s.UID != "" {
					n++
				}
			}
			if n > most || n == 0 && most > 0 {
				t.Errorf("after %d that ended, %d were cancelled within the timeout, want at most %d", before, n, most)
			}
		})
	}
}
