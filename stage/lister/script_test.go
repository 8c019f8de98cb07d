package lister_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each script contains one step a semicolon:
//
//	period 1h          the relist period, if it is not 1 s; with events it is a minute
//	takes 250ms        each list takes this time from now on
//	breaks             each list fails
//	slow 3s, fail 3s   the next list takes this time; it fails
//	empty, full, more  lists have no pod, or the pod again, or another one too
//	2.5s               time passes until 2.5 s after the start
//	up, down           the event stream comes up, and ends
//	now, soon, relist  a list is requested: at once, within the period, by a caller that waits
//	hints 4.5s         a list is requested at once every 100 ms until then
//	status, recovered, logged TEXT   what the lister says
//	stream             whether its metric says that the stream is up
//
// Each list is recorded as the second in which it began, with ! if it failed, ? if it is not believed,
// and - if it lacks the pod.
var scripts = map[string]struct{ script, want string }{
	"the period begins when the list ends": {"takes 100ms; 500ms; takes 200ms; 2s; takes 300ms; 4s", "0 1.1 2.3 3.6"},
	"a failed list is retried a period later": {
		"1s; fail 0s; 2s; status; fail 0s; 3s; logged failed, will be retried\" stage=lister err=\"the runtime is broken\"; recovered; 4s; status; logged again\" stage=lister pods=1 after=2s failures=2; recovered",
		"0 1 2! success@1,failures:1 3! logged:1 recovered:0 4 success@4,failures:0 logged:1 recovered:1",
	},
	"a recovery has the pods of its list": {"1.5s; fail 0s; 2.5s; more; 3.5s; logged again\" stage=lister pods=2", "0 1 2! 3 logged:1"},
	"a list that fails late is retried a period later": {
		"1s; fail 10.0001s; 12.5s; status; fail 10s; 23.5s; logged failed, will be retried\" stage=lister err=\"the runtime is broken\"; recovered; 24.5s; status; logged again\" stage=lister pods=1 after=22s failures=2; recovered",
		"0 1 2! success@1,failures:1 13.0001! logged:1 recovered:0 24.0001 success@24.0001,failures:0 logged:1 recovered:1",
	},

	"a stream lengthens the period":           {"400ms; stream; up; 180s; stream; down; 181s; stream; up; 181s", "0 up:0 0.4 60.4 120.4 up:1 180 181 up:0 181"},
	"a stream shortens no longer period":      {"period 2m; up; 130s", "0 0 120"},
	"stream: a failed list":                   {"up; fail 0s; 121s", "0 0 60! 61 121"},
	"stream: a request shortens once":         {"400ms; soon; 1s; up; 10s; soon; 71s", "0 1 1 11 71"},
	"stream: requests in a row":               {"up; 10s; soon; 10.5s; soon; 70.5s; soon; 71s", "0 0 11 71"},
	"stream: it comes up during a list":       {"slow 3s; 2s; up; 64s", "0 1 4 64"},
	"stream: it ends during a list":           {"up; slow 3s; 61s; down; 63s", "0 0 60 63"},
	"stream: another during a failure":        {"up; fail 3s; 61s; down; up; 123s", "0 0 60! 63 123"},
	"stream: it ends twice during a list":     {"up; slow 3s; 61s; down; up; down; 65s", "0 0 60 63 64 65"},
	"stream: a long list is confirmed":        {"up; takes 4s; 134s", "0 0 60 65 129"},
	"stream: a long list after three seconds": {"up; slow 3s; 61s; slow 4s; 200s", "0 0 60 123 128 188"},
	"stream: three seconds are not long":      {"up; slow 3s; 124s", "0 0 60 123"},
	"stream: no pod is confirmed soon":        {"400ms; up; 10s; empty; up; 10.5s; full; 71s; empty; 131s", "0 0.4 10? 11 71 131-"},
	"stream: none is confirmed once":          {"400ms; up; 10s; empty; up; 72s", "0 0.4 10? 11- 71-"},
	"stream: its end is listed at once":       {"up; 10s; now; 10.3s; down; 10.3s", "0 0 10 10.3"},
	"hints that never end, fast lists":        {"400ms; hints 4.5s; 5s", "0 0.4 1.4 2.4 3.4 4.4"},
	"hints that never end, slow lists":        {"takes 250ms; 400ms; hints 4.5s; 5s", "0 0.4 1.65 2.9 4.15"},
	"hints that never end, failed lists":      {"breaks; 400ms; hints 4.5s; 5s", "0! 0.4! 1.4! 2.4! 3.4! 4.4!"},
	"hints that never end, short period":      {"period 800ms; 400ms; hints 4.5s; 5s", "0 0.4 1.2 2 2.8 3.6 4.4"},
	"hints that never end, long period":       {"period 1h; 400ms; hints 4.5s; 5s", "0 0.4 1.4 2.4 3.4 4.4"},
	// A caller waits for a period after the last list on request, too.
	"few requests": {"period 1h; 100ms; now; 1.05s; relist; 1.09s; now; 1.2s; soon; now; 5s", "0 0.1 1.1 2.1"},
	// A request that is made while a list begins is served by that list.
	"requests during lists": {"period 1h; takes 250ms; now; 300ms; now; relist; 5s", "0 0.25 1.5"},
}

func TestScripts(t *testing.T) {
	for name, tc := range scripts {
		kit.Bubble(t, name, func(t *testing.T) {
			s := &script{t: t, period: period}
			for step := range strings.SplitSeq(tc.script, "; ") {
				s.play(step)
				synctest.Wait()
			}
			if got := s.words(); got != tc.want {
				t.Errorf("%s:\n\tgot  %s\n\twant %s", tc.script, got, tc.want)
			}
		})
	}
}

type script struct {
	*fixture // nil until the lister runs
	t        *testing.T
	period   time.Duration

	mu sync.Mutex // the lister runs beside the script
	// each is the fault of each list, next that of the next list, if not nil.
	each took
	next *took
	got  []noted
	sent []stage.Listing
}

type took struct {
	time   time.Duration
	failed bool
}

type noted struct {
	word         string
	list, failed bool
}

func (s *script) play(step string) {
	what, words, _ := strings.Cut(step, " ")
	d, _ := time.ParseDuration(words)
	switch what {
	case "period":
		s.period = d
		return
	case "takes", "breaks":
		s.locked(func() { s.each = took{d, what == "breaks"} })
		return
	}
	if s.fixture == nil {
		s.start()
	}
	switch what {
	case "slow", "fail":
		s.locked(func() { s.next = &took{d, what == "fail"} })
	case "empty":
		s.runtime.Remove("a")
	case "full":
		s.runtime.Set("a", "c=running")
	case "more":
		s.runtime.Set("b", "d=running")
	case "up", "down":
		s.lister.StreamUp(what == "up")
	case "now":
		s.lister.RelistNow()
	case "soon":
		s.lister.RelistSoon()
	case "relist":
		s.lister.Relist()
	case "hints":
		for time.Since(s.fixture.start) < d {
			s.lister.RelistNow()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
	case "status":
		status := s.lister.Status()
		s.note("success@%v,failures:%d", status.Success.Sub(s.fixture.start).Seconds(), status.Failures)
	case "stream":
		s.note("up:%v", kit.Metric(s.t, s.metrics, "pleg_event_stream_up"))
	case "recovered":
		s.note("recovered:%d", len(s.lister.Recovered()))
	case "logged":
		s.note("logged:%d", s.logged.Count(words))
	default:
		until, err := time.ParseDuration(what)
		kit.Must(s.t, err)
		s.sleepUntil(until)
	}
}

func (s *script) note(format string, args ...any) {
	s.locked(func() { s.got = append(s.got, noted{word: fmt.Sprintf(format, args...)}) })
}

func (s *script) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// start runs the lister, which lists at once.
func (s *script) start() {
	rt := plegtest.New()
	rt.Set("a", "c=running")
	start := time.Now()
	rt.SetListFault(func(context.Context) error {
		var now took
		s.locked(func() {
			if now = s.each; s.next != nil {
				now, s.next = *s.next, nil
			}
			s.got = append(s.got, noted{fmt.Sprint(time.Since(start).Seconds()), true, now.failed})
		})
		if time.Sleep(now.time); now.failed {
			return errList
		}
		return nil
	})
	s.fixture = newFixture(s.t, rt, s.period)
	go func() {
		for l := range s.listings {
			s.locked(func() { s.sent = append(s.sent, l) })
		}
	}()
	synctest.Wait()
}

func (s *script) words() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	sent := s.sent
	for _, n := range s.got {
		switch {
		case n.failed:
			n.word += "!"
		case n.list && len(sent) > 0:
			l := sent[0]
			if fmt.Sprint(l.At.Sub(s.fixture.start).Seconds()) != n.word {
				n.word += "?"
				break
			}
			if sent = sent[1:]; len(l.Pods) == 0 {
				n.word += "-"
			}
		}
		words = append(words, n.word)
	}
	return strings.Join(words, " ")
}

func TestNextRelistWaitsUntilTheListingIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt, period)
		time.Sleep(time.Minute)
		synctest.Wait()
		if lists := rt.Counts().Lists; lists != 1 {
			t.Errorf("lists before the first listing was received = %d, want 1", lists)
		}
		if first, _ := f.next(t); first.Began == 0 || f.lister.LastBegan() != first.Began {
			t.Errorf("the newest list began at the tick %d, want %d", f.lister.LastBegan(), first.Began)
		}
		if _, sent := f.next(t); sent != time.Minute+period {
			t.Errorf("second listing came at %v, want %v", sent, time.Minute+period)
		}
	})
}

// A listing is as old as the beginning of its list, and known from its end on.
func TestListingHasTheTimesOfItsList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks, during := new(stage.Ticks), uint64(0)
		rt := faultyRuntime(func(context.Context) error {
			during = ticks.Next()
			time.Sleep(period)
			return nil
		})
		f := newFixtureWith(t, rt, nil, period, 0, func(o *lister.Options) { o.Ticks = ticks })
		l, _ := f.next(t)
		if !l.At.Equal(f.start) || l.Began >= during || l.Answered <= during || f.lister.LastBegan() != l.Began {
			t.Errorf("%+v of a list that began at %v, before the tick %d; the newest began at %d", l.Asked, f.start, during, f.lister.LastBegan())
		}
	})
}

// With a very short period a list is due all the time. newFixture requires that Run ends. In
// a bubble no list would be due, because time stands still there.
func TestRunEndsAlthoughAListIsDue(t *testing.T) {
	newFixture(t, faultyRuntime(plegtest.Hang), 1)
}

// Each list takes a period and fails, then the next one waits for a period.
func TestStatusOfFailedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, faultyRuntime(func(context.Context) error { time.Sleep(period); return errList }), period)
		for n, failures := range []int{0, 1, 1, 2} {
			f.sleepUntil(time.Duration(n)*period + period/2)
			s := f.lister.Status()
			if runs := !s.Started.IsZero(); runs != (n%2 == 0) || s.Failures != failures || n > 0 && !s.Failing.Equal(f.start) || s.Period != period {
				t.Errorf("after %d.5 s: %+v, want %d failures since the start", n, s, failures)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		rt := faultyRuntime(func(ctx context.Context) error {
			switch calls++; calls {
			case 2:
				return errList
			case 4:
				return plegtest.Hang(ctx)
			default:
				time.Sleep(200 * time.Millisecond)
				return nil
			}
		})
		rt.Set("a", "c=running /s=exited") // the sandbox of the pod does not run
		rt.Set("b", "d=running /t=exited")
		rt.Set("c", "e=exited f=created /u=running")
		f := newFixture(t, rt, period)
		f.next(t)
		f.next(t)
		time.Sleep(period + 3*time.Second)
		// A bubble starts at 2000-01-01 00:00:00 UTC. The third list began 2.2 s later, the fourth
		// has been running for 3 s; an interval is counted for each list after the first.
		for name, want := range map[string]float64{
			"pleg_last_seen_seconds": 946684802.2, "pleg_relist_errors_total": 1, "pleg_relist_running_seconds": 3,
			"pleg_relist_duration_seconds": 3, "pleg_relist_interval_seconds": 3, "pleg_running_pods": 1,
		} {
			kit.RequireMetric(t, f.metrics, want, name)
		}
		kit.RequireSum(t, f.metrics, 0.4, "pleg_relist_duration_seconds") // the second failed at once
		kit.RequireSum(t, f.metrics, 1.2+2.2+1.2, "pleg_relist_interval_seconds")
		for state, want := range map[string]float64{"unknown": 0, "created": 1, "running": 2, "exited": 1} {
			kit.RequireMetric(t, f.metrics, want, "pleg_running_containers", state)
		}
	})
}

// probe is a runtime's cheapest call.
type probe func(context.Context) error

func (p probe) Probe(ctx context.Context) error { return p(ctx) }

// TestProbesBetweenLists uses a runtime that stops answering between two lists that are far apart.
func TestProbesBetweenLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int64
		var silent atomic.Bool
		rt := plegtest.New()
		f := newFixtureWith(t, rt, probe(func(context.Context) error {
			if probes.Add(1); silent.Load() {
				time.Sleep(3 * time.Second)
				return errors.New("no answer")
			}
			return nil
		}), time.Minute, 100)
		f.sleepUntil(21 * time.Second)
		if probes, lists := probes.Load(), rt.Counts().Lists; probes != 10 || lists != 1 {
			t.Errorf("%d probes and %d lists in 21 s, want 10 and 1", probes, lists)
		}
		silent.Store(true)
		rt.SetListFault(func(context.Context) error { time.Sleep(20 * time.Second); return nil })
		f.sleepUntil(30 * time.Second)
		s := f.lister.Status()
		if got := s.Failing.Sub(f.start); got != 22*time.Second || s.Failures != 1 || s.FailedAfter != 3*time.Second {
			t.Errorf("failing since %v, %d times, after %v, want the probe of second 22", got, s.Failures, s.FailedAfter)
		}
		if got := s.Started.Sub(f.start); got != 25*time.Second {
			t.Errorf("the list began at %v, want 25 s", got)
		}
		silent.Store(false)
		rt.SetListFault(nil)
		f.sleepUntil(46 * time.Second)
		if s := f.lister.Status(); s.Failures != 0 || s.Took != 20*time.Second {
			t.Errorf("after the answer: %+v", s)
		}
		f.logged.RequireLines(t, 1, `level=WARN msg="relist failed, will be retried" stage=lister err="no answer"`)
	})
}

// Lists that come sooner than a probe are not delayed by it.
func TestNoProbesBetweenNearLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixtureWith(t, rt, probe(func(context.Context) error {
			t.Error("a probe between lists")
			return nil
		}), time.Second, 100)
		f.sleepUntil(9500 * time.Millisecond)
		if n := rt.Counts().Lists; n != 10 {
			t.Errorf("%d lists in 9.5 s, want 10", n)
		}
	})
}

// A list that the end of Run cuts is no listing.
func TestListAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // each time the lister may send or end
			f := newFixtureWith(t, faultyRuntime(plegtest.Hang), nil, period, 10)
			f.sleepUntil(time.Second)
			_ = f.stop()
			if l, open := <-f.listings; open {
				t.Fatalf("the listing %+v comes from a list that was cut", l)
			}
		}
	})
}

// A listing and the status say whether the event stream was up.
func TestListingsOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, plegtest.New(), nil, period, 0)
		for _, up := range []bool{false, true, false} {
			f.lister.StreamUp(up)
			want := period
			if up {
				want = periodWithEvents
			}
			for l, _ := f.next(t); l.StreamUp != up; l, _ = f.next(t) {
				if time.Since(f.start) > time.Minute {
					t.Fatalf("no listing says that the stream is up: %v", up)
				}
			}
			synctest.Wait()
			if l, _ := f.next(t); l.StreamUp != up || f.lister.Status().Period != want {
				t.Errorf("%+v of a stream that is up: %v, period %v", l, up, f.lister.Status().Period)
			}
		}
	})
}

// The caller of a list that is not believed waits for the list that confirms it.
func TestCallerOfAListThatIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		rt.Set("a", "c=running")
		f := newFixtureWith(t, rt, nil, period, 10)
		f.sleepUntil(500 * time.Millisecond)
		rt.SetListFault(plegtest.Fail(errList))
		f.sleepUntil(1500 * time.Millisecond)
		rt.SetListFault(nil)
		rt.Remove("a")
		f.lister.Relist()
		f.sleepUntil(1600 * time.Millisecond)
		f.logged.RequireLines(t, 1, "lacks every pod")
		f.sleepUntil(3500 * time.Millisecond)
		for _, want := range []struct{ pods, callers int }{{1, 0}, {0, 1}} {
			if l := <-f.listings; len(l.Pods) != want.pods || len(l.Relisted) != want.callers {
				t.Errorf("listing of %d pods for %d callers, want %+v", len(l.Pods), len(l.Relisted), want)
			}
		}
	})
}

// Each caller of a list that fails gets its error.
func TestCallersOfAListThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, faultyRuntime(plegtest.Fail(errList)), period)
		callers := []<-chan error{f.lister.Relist(), f.lister.Relist(), f.lister.Relist()}
		f.sleepUntil(period)
		for n, caller := range callers {
			select {
			case err := <-caller:
				if !errors.Is(err, errList) {
					t.Errorf("caller %d got %v, want %v", n, err, errList)
				}
			default:
				t.Errorf("caller %d still waits", n)
			}
		}
	})
}

// A probe that the end of Run cuts has not failed.
func TestProbeAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, plegtest.New(), probe(plegtest.Hang), time.Minute, 10)
		f.sleepUntil(3 * time.Second)
		if f.lister.Status().Started.IsZero() {
			t.Error("no probe is in progress")
		}
		_ = f.stop() // kit.Run reports the error
		f.logged.RequireLines(t, 0, "relist failed")
		kit.RequireMetric(t, f.metrics, 0, "pleg_relist_errors_total")
	})
}

// After a break, a list that lacks every pod is believed once a second list says so.
func TestListThatLacksEveryPod(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks, back bool // a list fails before, the pod is there again in the list after
		stays        bool // another pod never goes
		others       bool // two new pods come
		kubelet      bool
		want         string
	}{
		"after a failed list, twice":         {true, false, false, false, false, "1@0 0@3"},
		"after a failed list, once":          {true, true, false, false, false, "1@0 1@3"},
		"without a break":                    {false, false, false, false, false, "1@0 1@1 0@2 0@3"},
		"after a failed list, some remain":   {true, false, true, false, false, "2@0 1@2 1@3"},
		"after a failed list, others come":   {true, false, false, true, false, "1@0 2@3"},
		"after a failed list, for a kubelet": {true, false, false, false, true, "1@0 0@2 0@3"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := plegtest.New()
			rt.Set("a", "c=running")
			if tc.stays {
				rt.Set("b", "c=running")
			}
			f := newFixtureWith(t, rt, nil, period, 10, func(o *lister.Options) { o.KubeletEvents = tc.kubelet })
			f.sleepUntil(500 * time.Millisecond)
			kit.RequireMetric(t, f.metrics, 0, "pleg_relist_running_seconds")
			if tc.breaks {
				rt.SetListFault(plegtest.Fail(errList))
			}
			f.sleepUntil(1500 * time.Millisecond)
			rt.SetListFault(nil)
			rt.Remove("a")
			if tc.others {
				rt.Set("c", "d=running")
				rt.Set("e", "f=running")
			}
			f.sleepUntil(2500 * time.Millisecond)
			counted := 0.0 // the metrics count what is believed
			if tc.breaks && !tc.kubelet {
				counted = 1
			}
			kit.RequireMetric(t, f.metrics, counted, "pleg_running_containers", "running")
			if tc.back {
				rt.Set("a", "c=running")
			}
			f.sleepUntil(3500 * time.Millisecond)
			var got []string
			for len(f.listings) > 0 {
				l := <-f.listings
				got = append(got, fmt.Sprintf("%d@%v", len(l.Pods), l.At.Sub(f.start).Seconds()))
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("listings %s, want %s", got, tc.want)
			}
			doubts := 0
			if tc.breaks && !tc.stays && !tc.kubelet {
				doubts = 1
			}
			f.logged.RequireLines(t, doubts, `level=INFO msg="relist lacks every pod, will be confirmed" stage=lister pods=1`)
		})
	}
}
