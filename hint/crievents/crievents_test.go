package crievents_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/hint/crievents"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errUnavailable = errors.New("unavailable")

// target records its calls.
type target struct {
	mu        sync.Mutex
	told      []string
	recovered chan struct{}
}

func (t *target) tell(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = append(t.told, fmt.Sprintf(format, args...))
}

func (t *target) RequestRelist(uid pleg.PodUID) { t.tell("relist %s", uid) }
func (t *target) RelistNow()                    { t.tell("relist all") }
func (t *target) Announce(h pleg.Hint)          { t.tell("announce %s", h.UID) }
func (t *target) StreamUp(up bool)              { t.tell("up %t", up) }
func (t *target) Recovered() <-chan struct{}    { return t.recovered }

// take returns the calls of the target since the last call.
func (t *target) take() string {
	synctest.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.told = nil }()
	return strings.Join(t.told, ", ")
}

func run(ctx context.Context, events pleg.EventWatcher, to crievents.Target, o crievents.Options) error {
	f, err := crievents.New(events, to, o)
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

type fixture struct {
	*target
	t       *testing.T
	runtime *plegtest.Runtime
	metrics *prometheus.Registry
	log     kit.Log
}

// follow runs the source in a bubble until the test ends. prepare may be nil.
func follow(t *testing.T, name string, prepare func(*plegtest.Runtime), test func(f *fixture)) {
	t.Helper()
	kit.Bubble(t, name, func(t *testing.T) {
		f := &fixture{
			target: &target{recovered: make(chan struct{})}, t: t,
			runtime: plegtest.New(), metrics: prometheus.NewPedanticRegistry(),
		}
		if prepare != nil {
			prepare(f.runtime)
		}
		kit.Run(t, func(ctx context.Context) error {
			return run(ctx, f.runtime, f.target, crievents.Options{
				Logger: f.log.Logger(), Metrics: instrument.Registry{Registerer: f.metrics},
			})
		})
		synctest.Wait()
		test(f)
	})
}

// requireTold waits d, and requires that the target has got these calls.
func (f *fixture) requireTold(d time.Duration, want string) {
	f.t.Helper()
	time.Sleep(d)
	if got := f.take(); got != want {
		f.t.Errorf("told %q, want %q", got, want)
	}
}

func TestEventsRelist(t *testing.T) {
	for name, tc := range map[string]struct {
		hint pleg.Hint
		want string
	}{
		"started":               {pleg.Hint{UID: "a", State: pleg.StateRunning}, "announce a, relist a"},
		"exited":                {pleg.Hint{UID: "a", State: pleg.StateExited}, "announce a, relist a"},
		"removed":               {pleg.Hint{UID: "a", State: pleg.StateExited, Removed: true}, "announce a, relist a"},
		"created":               {pleg.Hint{UID: "a", State: pleg.StateCreated}, "announce a"},
		"created and removed":   {pleg.Hint{UID: "a", State: pleg.StateCreated, Removed: true}, "announce a, relist a"},
		"of an unknown kind":    {pleg.Hint{UID: "a"}, "announce a, relist a"},
		"of no pod":             {pleg.Hint{Container: "c", State: pleg.StateRunning}, "announce , relist all"},
		"a creation, of no pod": {pleg.Hint{State: pleg.StateCreated}, "announce , relist all"},
	} {
		follow(t, name, nil, func(f *fixture) {
			f.requireTold(time.Second, "up true")
			f.runtime.AnnounceHint(tc.hint)
			f.requireTold(0, tc.want)
			kit.RequireMetric(t, f.metrics, 1, "pleg_runtime_events_total")
			incomplete := 0.0
			if tc.hint.UID == "" {
				incomplete = 1
			}
			kit.RequireMetric(t, f.metrics, incomplete, "pleg_incomplete_runtime_events_total")
		})
	}
}

// A stream is up once it has lived for half a second or has sent an event.
func TestStreamIsUp(t *testing.T) {
	follow(t, "it has lived", nil, func(f *fixture) {
		f.requireTold(500*time.Millisecond-1, "")
		f.requireTold(1, "up true")
		f.log.RequireLines(t, 0, "msg")
		f.runtime.EndWatches(errUnavailable)
		f.requireTold(0, "up false")
		kit.RequireMetric(t, f.metrics, 1, "pleg_event_stream_opened_total")
		kit.RequireMetric(t, f.metrics, 1, "pleg_event_stream_breaks_total")
	})
	follow(t, "an event", nil, func(f *fixture) {
		for range 3 {
			f.runtime.AnnounceHint(pleg.Hint{UID: "a", State: pleg.StateCreated})
		}
		told := strings.Split(f.take(), ", ")
		slices.Sort(told)
		if want := []string{"announce a", "announce a", "announce a", "up true"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		f.requireTold(time.Minute, "")
		f.runtime.EndWatches(errUnavailable)
		f.requireTold(0, "up false")
	})
	follow(t, "it ends at once", nil, func(f *fixture) {
		f.runtime.SetWatchFault(plegtest.Hang) // the next one
		f.runtime.EndWatches(errUnavailable)
		f.requireTold(time.Minute, "")
	})
}

// A stream that worked is reopened at once, however long the runtime was away before.
func TestBrokenStreamIsReopenedWithBackoff(t *testing.T) {
	const broken = 100
	tries := make(chan time.Time, broken+1)
	prepare := func(rt *plegtest.Runtime) {
		rt.SetWatchFault(func(context.Context) error {
			if tries <- time.Now(); len(tries) <= broken {
				return errUnavailable
			}
			rt.SetWatchFault(nil)
			return nil
		})
	}
	follow(t, "", prepare, func(f *fixture) {
		f.requireTold(time.Second, "")
		if n := len(tries); n < 3 || n > 8 {
			t.Errorf("%d tries in the first second, want a few", n)
		}
		f.requireTold(time.Hour, "up true")
		last := <-tries
		for n := 1; n <= broken; n++ {
			at := <-tries
			if wait := at.Sub(last); n >= 10 && (wait < 5*time.Second || wait > 10*time.Second) {
				t.Fatalf("waited %v before try %d, want 5 to 10 s", wait, n)
			}
			last = at
		}
		f.log.RequireLines(t, 1, `level=WARN msg="event stream broke, will be reopened" source=crievents err=unavailable`)
		f.log.RequireLines(t, 1, `level=INFO msg="event stream works again" source=crievents`)
		kit.RequireMetric(t, f.metrics, broken, "pleg_event_stream_breaks_total") // each try that failed
		f.runtime.EndWatches(errUnavailable)
		f.requireTold(0, "up false")
		f.requireTold(600*time.Millisecond, "up true")
		f.log.RequireLines(t, 2, "event stream broke")
		f.log.RequireLines(t, 2, "event stream works again")

		var opened time.Time
		f.runtime.SetWatchFault(plegtest.Fail(errUnavailable)) // for long: the waits are long again
		f.runtime.EndWatches(errUnavailable)
		f.requireTold(time.Hour, "up false")
		f.runtime.SetWatchFault(func(context.Context) error { opened = time.Now(); return nil })
		f.requireTold(10*time.Second+600*time.Millisecond, "up true")
		time.Sleep(time.Until(opened.Add(10*time.Second + 1))) // longer than the longest wait
		f.runtime.EndWatches(errUnavailable)
		f.requireTold(0, "up false")
		f.requireTold(600*time.Millisecond, "up true")
	})
}

// Once a list succeeds again, the stream may work too, even if not at once.
func TestStreamIsReopenedWhenListsRecover(t *testing.T) {
	follow(t, "", func(rt *plegtest.Runtime) { rt.SetWatchFault(plegtest.Fail(errUnavailable)) }, func(f *fixture) {
		f.requireTold(time.Hour, "")
		f.recovered <- struct{}{}
		synctest.Wait()
		f.runtime.SetWatchFault(nil)
		f.requireTold(601*time.Millisecond, "up true")
		f.log.RequireLines(t, 1, "event stream broke") // not again after the next attempt
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	without := fmt.Errorf("receive: %w", pleg.ErrNoEvents)
	follow(t, "it is asked again", func(rt *plegtest.Runtime) { rt.SetWatchFault(plegtest.Fail(without)) }, func(f *fixture) {
		for n := range 2 {
			f.requireTold(time.Hour, "")
			f.log.RequireLines(t, n+1, `level=INFO msg="runtime does not support container events" source=crievents err="receive: `)
			f.runtime.SetWatchFault(nil) // the runtime is upgraded
			f.requireTold(11*time.Second, "up true")
			f.runtime.SetWatchFault(plegtest.Fail(without)) // and downgraded
			f.runtime.EndWatches(without)
			f.requireTold(0, "up false")
		}
		kit.RequireMetric(t, f.metrics, 0, "pleg_event_stream_breaks_total")
	})
	kit.Bubble(t, "it never has any", func(t *testing.T) {
		var log kit.Log
		reg := prometheus.NewPedanticRegistry()
		kit.Run(t, func(ctx context.Context) error {
			return run(ctx, nil, &target{}, crievents.Options{Logger: log.Logger(), Metrics: instrument.Registry{Registerer: reg}})
		})
		time.Sleep(time.Hour)
		log.RequireLines(t, 1, `level=INFO msg="runtime does not support container events" source=crievents err="`+pleg.ErrNoEvents.Error()+`"`)
		log.RequireLines(t, 1, "msg")
		kit.RequireMetric(t, reg, 0, "pleg_event_stream_breaks_total")
	})
	kit.Bubble(t, "events are required", func(t *testing.T) {
		rt := plegtest.New()
		time.AfterFunc(time.Second, func() {
			rt.SetWatchFault(plegtest.Fail(errUnavailable)) // a stream that breaks is reopened
			rt.EndWatches(errUnavailable)
		})
		time.AfterFunc(time.Minute, func() { rt.SetWatchFault(plegtest.Fail(without)) })
		reg := prometheus.NewPedanticRegistry()
		o := crievents.Options{Required: true, Logger: slog.New(slog.DiscardHandler), Metrics: instrument.Registry{Registerer: reg, KubeletNames: true}}
		if err := run(t.Context(), rt, &target{}, o); !errors.Is(err, pleg.ErrNoEvents) || err.Error() != "follow the runtime's events: "+without.Error() {
			t.Errorf("Run = %v, want %v", err, without)
		}
		kit.RequireMetric(t, reg, 1, "kubelet_evented_pleg_connection_success_count")
		if kit.Metric(t, reg, "kubelet_evented_pleg_connection_error_count") == 0 {
			t.Error("no break of a stream is counted under the kubelet's name")
		}
		if _, err := crievents.New(rt, &target{}, o); !errors.As(err, new(prometheus.AlreadyRegisteredError)) || !strings.HasPrefix(err.Error(), "register metric pleg_") {
			t.Errorf("a second follower with the registerer: %v", err)
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	for name, fault := range map[string]plegtest.Fault{
		"the stream is open":    nil,
		"it is being opened":    plegtest.Hang,
		"it waits to be opened": plegtest.Fail(errUnavailable),
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := plegtest.New()
			rt.SetWatchFault(fault)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			var log kit.Log
			go func() { ended <- run(ctx, rt, &target{}, crievents.Options{Logger: log.Logger()}) }()
			time.Sleep(time.Second)
			cause := errors.New("test")
			cancel(cause)
			if err := <-ended; !errors.Is(err, cause) {
				t.Errorf("Run = %v, want %v", err, cause)
			}
			breaks := 0
			if name == "it waits to be opened" {
				breaks = 1
			}
			log.RequireLines(t, breaks, "msg") // the end of Run is no break
		})
	}
}
