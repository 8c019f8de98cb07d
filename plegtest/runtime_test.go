package plegtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errFault = errors.New("fault")

func TestPodsAreListedAsSet(t *testing.T) {
	r := plegtest.New()
	r.Set("web/a", "c=created /s=running")
	r.Set("b", "c=running")
	r.Set("web/a", "c=running /s=exited")
	r.Set("gone", "c=running")
	r.Set("gone", "")
	pods, err := r.ListPods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Fatalf("ListPods = %+v, %v, want web/a and b", pods, err)
	}
	a := pods[0]
	if a.Namespace != "web" || a.Labels["pod"] != "a" || a.Containers[0].State != pleg.StateRunning || a.Sandboxes[0].State != pleg.StateExited {
		t.Errorf("pod web/a = %+v", a)
	}
	if pod, err := r.ListPod(t.Context(), "web/a"); err != nil || pod != a {
		t.Errorf("ListPod = %+v, %v, want the listed pod", pod, err)
	}
	if pod, err := r.ListPod(t.Context(), "gone"); err != nil || pod != nil {
		t.Errorf("ListPod of a removed pod = %+v, %v, want nil", pod, err)
	}
	r.SetList([]*pleg.Pod{nil})
	if pods, err := r.ListPods(t.Context()); err != nil || len(pods) != 1 || pods[0] != nil {
		t.Errorf("ListPods = %+v, %v, want the list that was set", pods, err)
	}
}

func TestStatusIsThatOfTheListedPod(t *testing.T) {
	r := plegtest.New()
	ready, stopped := plegtest.Pod("a", "c=exited /s=running"), plegtest.Pod("b", "c=exited /s=exited")
	s, err := r.PodStatus(t.Context(), ready, nil)
	if err != nil || s.Container("c").ExitCode != 3 || s.Container("c").Reason != "Error" || s.IPs[0] != plegtest.Address {
		t.Errorf("status = %+v, %v, want an exit code, a reason and an address", s, err)
	}
	if s, err := r.PodStatus(t.Context(), stopped, nil); err != nil || len(s.IPs) > 0 || s.SandboxReady() {
		t.Errorf("status = %+v, %v, want no address", s, err)
	}
	want := &pleg.PodStatus{UID: "a"}
	r.SetStatus("a", want)
	if s, err := r.PodStatus(t.Context(), ready, nil); err != nil || s != want {
		t.Errorf("status = %+v, %v, want the status that was set", s, err)
	}
}

var faults = map[string]struct {
	fault plegtest.Fault
	err   error
	took  time.Duration
	panic bool
}{
	"none":           {},
	"fail":           {fault: plegtest.Fail(errFault), err: errFault},
	"hang":           {fault: plegtest.Hang, err: context.DeadlineExceeded, took: 10 * time.Second},
	"delay":          {fault: plegtest.Delay(3 * time.Second), took: 3 * time.Second},
	"delay too long": {fault: plegtest.Delay(time.Hour), err: context.DeadlineExceeded, took: 10 * time.Second},
	"panic":          {fault: plegtest.Panic("no"), panic: true},
}

var faultyCalls = map[string]func(context.Context, *plegtest.Runtime, plegtest.Fault) error{
	"list": func(ctx context.Context, r *plegtest.Runtime, f plegtest.Fault) error {
		r.SetListFault(f)
		_, err := r.ListPods(ctx)
		return err
	},
	"list of one pod": func(ctx context.Context, r *plegtest.Runtime, f plegtest.Fault) error {
		r.SetListFault(f)
		_, err := r.ListPod(ctx, "a")
		return err
	},
	"inspection": func(ctx context.Context, r *plegtest.Runtime, f plegtest.Fault) error {
		r.SetInspectFault(f)
		_, err := r.PodStatus(ctx, plegtest.Pod("a", ""), nil)
		return err
	},
	"inspection of one pod": func(ctx context.Context, r *plegtest.Runtime, f plegtest.Fault) error {
		r.SetPodFault("a", f)
		_, err := r.PodStatus(ctx, plegtest.Pod("a", ""), nil)
		return err
	},
}

func TestFaults(t *testing.T) {
	for name, tt := range faults {
		for call, run := range faultyCalls {
			t.Run(name+"/"+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					defer func() {
						if got := recover() != nil; got != tt.panic {
							t.Errorf("panic: %t, want %t", got, tt.panic)
						}
					}()
					began := time.Now()
					if err := run(ctx, plegtest.New(), tt.fault); !errors.Is(err, tt.err) || time.Since(began) != tt.took {
						t.Errorf("the call ended with %v after %v, want %v after %v", err, time.Since(began), tt.err, tt.took)
					}
				})
			})
		}
	}
}

func TestBlockedCallIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, release, ended := plegtest.New(), make(chan struct{}), make(chan error, 1)
		r.SetPodFault("a", plegtest.Block(release))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { _, err := r.PodStatus(ctx, plegtest.Pod("a", ""), nil); ended <- err }()
		synctest.Wait()
		if got := r.Counts().InFlight; got != 1 || len(ended) > 0 {
			t.Errorf("%d inspections in flight, want the blocked one", got)
		}
		close(release)
		if err := <-ended; err != nil {
			t.Errorf("the inspection ended with %v after its release", err)
		}
	})
}

func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plegtest.New()
		r.SetInspectFault(plegtest.Delay(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, uid := range []pleg.PodUID{"a", "a", "b"} {
			go func() { _, _ = r.PodStatus(ctx, plegtest.Pod(uid, ""), nil) }()
		}
		_, _ = r.ListPods(t.Context())
		_, _ = r.ListPod(ctx, "a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got, want := fmt.Sprintf("%+v", r.Counts()),
			"{Lists:1 PodLists:1 Inspections:map[a:2 b:1] InFlight:0 Peak:3 PeakPerPod:2 WithoutDeadline:1}"
		if got != want {
			t.Errorf("counts\n\t%s, want\n\t%s", got, want)
		}
	})
}

func TestEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plegtest.New()
		r.Announce("a", "c") // is lost: no stream is open
		var hints []pleg.Hint
		ended := make(chan error, 1)
		watch := func(ctx context.Context) {
			ended <- r.WatchEvents(ctx, func() {}, func(h pleg.Hint) { hints = append(hints, h) })
		}
		go watch(t.Context())
		synctest.Wait()
		r.Set("a", "c=running /s=running")
		r.Announce("a", "c")
		r.Set("a", "/s=running /t=running")
		r.Announce("a", "c")
		r.AnnounceHint(pleg.Hint{})
		r.EndWatches(errFault)
		if err := <-ended; !errors.Is(err, errFault) || len(hints) != 3 {
			t.Fatalf("the stream ended with %v after %d events, want %v after 3", err, len(hints), errFault)
		}
		if h := hints[0]; h.State != pleg.StateRunning || h.Removed || h.Sandbox != "s" || h.Pod == nil || h.Status.Container("c") == nil {
			t.Errorf("event of a running container = %+v", h)
		}
		if h := hints[1]; !h.Removed || h.Pod != nil {
			t.Errorf("event of a removed container = %+v", h)
		}
		r.SetWatchFault(plegtest.Fail(pleg.ErrNoEvents))
		watch(t.Context())
		if err := <-ended; !errors.Is(err, pleg.ErrNoEvents) {
			t.Errorf("WatchEvents = %v, want %v", err, pleg.ErrNoEvents)
		}
	})
}

func TestBasicHasNoOtherMethods(t *testing.T) {
	r := plegtest.New().Basic()
	if _, ok := r.(pleg.PodLister); ok {
		t.Error("it lists single pods")
	}
	if _, ok := r.(pleg.EventWatcher); ok {
		t.Error("it has CRI events")
	}
}
