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

// An inspection that was overtaken lends its place. It is neither cancelled nor retried.
func TestOvertakenInspectionsLendTheirPlaces(t *testing.T) {
	const inspectors = 4
	testHanging(t, inspectors, func(t *testing.T, f *fixture) {
		f.do(one("healthy-0"))
		for n, uid := range uids("hung", 2*inspectors-1) {
			f.inspect <- one(uid)
			time.Sleep(20 * time.Millisecond) // what a short inspection may take
			if s, _, ok := f.do(one(pleg.PodUID(fmt.Sprint("healthy-", n)))); s.Err != nil || !ok {
				t.Errorf("a healthy pod settled with %v", s.Err)
			}
		}
		if len(f.settled) > 0 {
			t.Errorf("settled %+v, although another place is free", <-f.settled)
		}
	})
}

// A hung inspection lends its place, but not before it is older than HungAfter.
func TestHungInspectionLendsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
		for _, uid := range []pleg.PodUID{"first", "second", "third"} {
			f.runtime.SetPodFault(uid, plegtest.Hang)
		}
		f.runtime.SetPodFault("short", plegtest.Delay(hungAfter/5))
		f.inspect <- one("first")
		time.Sleep(hungAfter / 4)
		f.do(one("short"))
		if !f.accepts(one("second")) || f.accepts(one("third")) {
			t.Error("want one more inspection while none hangs")
		}
		time.Sleep(hungAfter - hungAfter/4 - hungAfter/5)
		if !f.accepts(one("third")) {
			t.Error("the place of a hung inspection is not lent")
		}
	})
}

// An inspection that took more than half of an older one's age tells nothing of that one:
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

// If every place is taken and nothing ends, the youngest inspection is cancelled each four
// times HungAfter, and the oldest never: a runtime that serves its calls in order works
// on that one. A runtime that answered before is more likely to be slow, and few are.
func TestCancelledWhileNothingEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		before int // healthy pods
		want   map[time.Duration]pleg.PodUID
	}{
		"runtime that never answered": {want: map[time.Duration]pleg.PodUID{
			6 * time.Second: "hung-3", 10 * time.Second: "", 11 * time.Second: "",
		}},
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
					s := <-f.settled
					after := time.Since(began)
					want, ok := tc.want[after]
					switch cancelled := strings.Contains(s.Err.Error(), "none ends"); {
					case !ok, s.Hung == 0, cancelled != (want != ""), want != "" && s.UID != want:
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

// Of those that are not hung few are cancelled, however long nothing ends, and however many
// ended before.
func TestFewAreCancelledWhileNothingEnds(t *testing.T) {
	for before, most := range map[int]int{0: 10, 2000: 128/20 + 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, hanging(nil), inspector.Options{Inspectors: 2, HungAfter: hungAfter / 100})
			for range before {
				f.do(one("healthy"))
			}
			f.hang(t, uids("hung", 100)...)
			time.Sleep(timeout - 1)
			synctest.Wait()
			if n := len(f.settled); n == 0 || n > most {
				t.Errorf("after %d that ended, %d were cancelled within the timeout, want at most %d", before, n, most)
			}
		})
	}
}
