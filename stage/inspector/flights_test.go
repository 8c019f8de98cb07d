package inspector_test

import (
	"context"
	"errors"
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
			f.gone <- stage.Change{UID: "gone"} // a pod that is gone needs no slot
			if s := f.end(); s.UID != "gone" {
				t.Errorf("%s: settled %+v, want the removed pod", step, s)
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

// An inspection that took more than half of the age of an older one does not show that the older
// one hangs: both may wait for the same thing.
func TestWhatIsOvertaken(t *testing.T) {
	for name, tc := range map[string]struct {
		second time.Duration // begins a second later and takes this long
		err    error         // of the second
		want   float64
	}{"in half of the age": {time.Second, nil, 1}, "by one that fails": {time.Second / 2, errInspect, 1}, "in more": {time.Second + 1, nil, 0}} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
			f.runtime.SetPodFault("first", plegtest.Hang)
			f.runtime.SetPodFault("second", func(context.Context) error { time.Sleep(tc.second); return tc.err })
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

// If every slot is taken and nothing ends, the youngest inspection is cancelled, once in four times
// HungAfter. The oldest is never cancelled: a runtime that serves its calls in order works on it.
// If the runtime answered before, it is more likely to be slow, and few are cancelled.
func TestCancelledWhileNothingEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		before int // healthy pods
		want   map[time.Duration]pleg.PodUID
	}{
		"runtime that answered before": {before: 17, want: map[time.Duration]pleg.PodUID{
			5 * time.Second: "hung-2", 10 * time.Second: "",
		}},
		"runtime that answered little": {before: 1, want: map[time.Duration]pleg.PodUID{10 * time.Second: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			testHanging(t, 2, func(t *testing.T, f *fixture) {
				for _, uid := range uids("healthy", tc.before) {
					f.do(one(uid))
				}
				const says = "inspect pod ns/name-hung-2 (hung-2): no answer for 4s, cancelled as 3 inspections wait and none ends: context canceled"
				began := time.Now()
				f.hang(t, uids("hung", 20)...)
				for range len(tc.want) {
					s := f.end()
					after := time.Since(began)
					want, ok := tc.want[after]
					cancelled, how := strings.Contains(s.Err.Error(), "none ends"), stage.FailedHung
					if cancelled {
						how = stage.FailedLate
					}
					switch {
					case !ok, s.How != how, cancelled != (want != ""), want != "" && s.UID != want, cancelled && s.Err.Error() != says:
						t.Errorf("settled %+v after %v, want %q, %s", s, after, want, says)
					}
					for len(f.settled) > 0 {
						<-f.settled
					}
				}
			})
		})
	}
}

// If every slot is taken, the hung inspections are cancelled first, the oldest of them before the others.
func TestOldestHungIsCancelledFirst(t *testing.T) {
	testHanging(t, 2, func(t *testing.T, f *fixture) {
		f.inspect <- one("hung-0")
		time.Sleep(hungAfter / 2)
		f.inspect <- one("hung-1")
		time.Sleep(hungAfter)
		f.do(one("healthy"))
		f.hang(t, uids("hung-young", 4)...)
		for _, want := range []pleg.PodUID{"hung-0", "hung-1"} {
			if s := f.end(); s.UID != want || s.How != stage.FailedHung || !strings.Contains(s.Err.Error(), "none ends") {
				t.Errorf("settled %+v, want that %s was cancelled", s, want)
			}
		}
	})
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
				if s := <-f.settled; s.How != stage.Hangs && s.How != stage.NoEnding {
					n++
				}
			}
			if n > most || n == 0 && most > 0 {
				t.Errorf("after %d that ended, %d were cancelled within the timeout, want at most %d", before, n, most)
			}
		})
	}
}

// Retries take at most half of the slots. If the last inspection took HungAfter or longer, and none ends,
// retries begin one such duration apart, but at most twice HungAfter.
func TestRetriesLeaveSlots(t *testing.T) {
	for took, apart := range map[time.Duration]time.Duration{hungAfter - 1: 0, hungAfter: hungAfter, 5 * hungAfter: 2 * hungAfter} {
		kit.Bubble(t, took.String(), func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 8, HungAfter: hungAfter})
			f.runtime.SetPodFault("slow", plegtest.Delay(took))
			f.do(one("slow"))
			f.runtime.SetInspectFault(plegtest.Hang)
			for n, uid := range uids("hung", 4) {
				if !f.acceptsRetry(one(uid)) {
					t.Errorf("retry %d did not begin", n)
				}
				if apart == 0 {
					continue
				}
				time.Sleep(apart - 1)
				if f.acceptsRetry(one("early")) {
					t.Errorf("after retry %d another began sooner than %v later", n, apart)
				}
				time.Sleep(time.Nanosecond)
			}
			if f.acceptsRetry(one("more")) {
				t.Error("more than 4 retries began")
			}
			f.runtime.SetInspectFault(nil)
			if s, _, ok := f.do(one("healthy")); s.Err != nil || !ok {
				t.Errorf("a healthy pod settled with %v", s.Err)
			}
		})
	}
}

// A retry begins as soon as any slot is free, on a busy node too.
func TestRetryNeedsOneFreeSlot(t *testing.T) {
	for busy, want := range map[int]bool{3: true, 4: false} {
		testHanging(t, 4, func(t *testing.T, f *fixture) {
			for _, uid := range uids("hung", busy) {
				f.inspect <- one(uid)
			}
			if began := f.acceptsRetry(one("hung-again")); began != want {
				t.Errorf("with %d of 4 slots taken a retry began: %v", busy, began)
			}
		})
	}
}

// An error of the runtime's own is no hang, however late it comes.
func TestLateError(t *testing.T) {
	for name, tc := range map[string]struct {
		after     time.Duration
		overtaken bool
		how       stage.Ending
	}{"promptly": {hungAfter - 1, false, stage.Failed}, "late": {hungAfter, false, stage.FailedLate}, "overtaken": {hungAfter, true, stage.FailedLate}} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
			f.runtime.SetPodFault("a", func(context.Context) error { time.Sleep(tc.after); return errInspect })
			f.inspect <- one("a")
			if tc.overtaken {
				time.Sleep(hungAfter / 2)
				f.do(one("quick"))
			}
			if s := f.end(); s.How != tc.how || !errors.Is(s.Err, errInspect) {
				t.Errorf("settled %+v, want the ending %d", s, tc.how)
			}
		})
	}
}

// On a slow runtime more than Inspectors inspections are in flight only as long as none ends.
func TestExtraInspectionsOnlyWhileNoneEnds(t *testing.T) {
	for most, inspectors := range map[int]int{6: 4, 2: 1} {
		kit.Bubble(t, fmt.Sprint(inspectors), func(t *testing.T) {
			begun, ended := 0, make(chan struct{})
			f := newFixture(t, nil, inspector.Options{Inspectors: inspectors, HungAfter: hungAfter})
			f.runtime.SetInspectFault(func(ctx context.Context) error {
				select {
				case <-ended:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			for f.accepts(one(pleg.PodUID(fmt.Sprint("pod-", begun)))) {
				begun++
			}
			for range 2 {
				time.Sleep(hungAfter)
				for f.accepts(one(pleg.PodUID(fmt.Sprint("pod-", begun)))) {
					begun++
				}
			}
			if begun != most {
				t.Fatalf("%d inspections began, want %d", begun, most)
			}
			for n := range 10 {
				time.Sleep(hungAfter / 2)
				ended <- struct{}{}
				for f.accepts(one(pleg.PodUID(fmt.Sprint("pod-", begun)))) {
					begun++
				}
				if got := f.inspector.State().InFlight; n > 0 && got != inspectors {
					t.Errorf("%d inspections in flight after %d ended, want %d", got, n+1, inspectors)
				}
			}
		})
	}
}
