package plegtest_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errFault = errors.New("fault")

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
	"blocks": {took: 11 * time.Second, fault: func(ctx context.Context) error {
		release := make(chan struct{})
		time.AfterFunc(11*time.Second, func() { close(release) })
		return plegtest.Block(release)(ctx)
	}},
	"ignores its context": {fault: func(context.Context) error { time.Sleep(11 * time.Second); return nil }, took: 11 * time.Second},
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
			kit.Bubble(t, name+"/"+call, func(t *testing.T) {
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
		}
	}
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
		restarted := plegtest.Pod("a", "c=running other=created /s=running /t=exited")
		restarted.Containers[0].Attempt, restarted.Sandboxes[0].Attempt = 2, 1
		r.SetPod(restarted)
		r.Announce("a", "c")
		r.Announce("a", "s")
		if s, err := r.PodStatus(t.Context(), restarted, nil); err != nil || s.Containers[0].Attempt != 2 || s.Sandboxes[0].Attempt != 1 {
			t.Errorf("the status is %+v, %v, want the attempts of the list", s, err)
		}
		r.SetDetails(func(s *pleg.PodStatus) { s.Containers[0].Message = "detail" })
		r.Set("a", "c=exited /s=running")
		r.Announce("a", "c")
		r.SetDetails(nil)
		r.Set("a", "/s=running")
		pods, err := r.ListPods(t.Context())
		kit.Must(t, err)
		if len(pods) != 1 {
			t.Errorf("%d pods are listed, want one that was replaced", len(pods))
		}
		if s := plegtest.Status(pods[0]).Sandboxes[0]; !s.CreatedAt.Equal(time.Now()) {
			t.Errorf("the sandbox was created at %v, want the present time", s.CreatedAt)
		}
		r.Announce("a", "c")
		r.Announce("gone", "c")
		r.AnnounceHint(pleg.Hint{})
		r.EndWatches(errFault)
		if err := <-ended; !errors.Is(err, errFault) || len(hints) != 6 {
			t.Fatalf("the stream ended with %v after %d events, want %v after 6", err, len(hints), errFault)
		}
		h := hints[2]
		if h.Status == nil || h.Status.ExitCode != 3 || h.Status.Message != "detail" {
			t.Errorf("event of an exited container has the status %+v", h.Status)
		}
		h.Status = nil
		for i, want := range []pleg.Hint{
			{UID: "a", Container: "c", Sandbox: "s", State: pleg.StateRunning, Name: "of-c", Attempt: 2, PodName: "name-a", PodNamespace: "ns"},
			{UID: "a", Container: "s", Sandbox: "s", State: pleg.StateRunning, Name: "name-a", Attempt: 1, PodName: "name-a", PodNamespace: "ns"},
			{UID: "a", Container: "c", Sandbox: "s", State: pleg.StateExited, Name: "of-c", PodName: "name-a", PodNamespace: "ns"},
			{UID: "a", Container: "c", State: pleg.StateExited, Removed: true, PodName: "name-a", PodNamespace: "ns"},
			{UID: "gone", Container: "c", State: pleg.StateExited, Removed: true},
			{},
		} {
			if hints[2] = h; !reflect.DeepEqual(hints[i], want) {
				t.Errorf("event %d is %+v, want %+v", i, hints[i], want)
			}
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.WatchEvents(cancelled, func() { t.Error("a stream whose context has ended was opened") }, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("WatchEvents = %v, want the end of the context", err)
		}
		r.SetWatchFault(plegtest.Fail(pleg.ErrNoEvents))
		for range 2 { // until the fault ends
			watch(t.Context())
			if err := <-ended; !errors.Is(err, pleg.ErrNoEvents) {
				t.Errorf("WatchEvents = %v, want %v", err, pleg.ErrNoEvents)
			}
		}
	})
}

// Each call is counted. The counts of a moment stay as they were.
func TestCounts(t *testing.T) {
	r := plegtest.New()
	before, during := r.Counts(), 0
	r.SetInspectFault(func(context.Context) error { during = r.Counts().InFlight; return nil })
	_, err := r.PodStatus(t.Context(), plegtest.Pod("a", "c=running"), nil)
	kit.Must(t, err)
	for range 2 {
		_, err := r.ListPod(t.Context(), "a")
		kit.Must(t, err)
	}
	for range 3 {
		_, err := r.ListPods(t.Context())
		kit.Must(t, err)
	}
	for want, got := range map[*plegtest.Counts]plegtest.Counts{
		{Inspections: map[pleg.PodUID]int{}}:                              before,
		{Inspections: map[pleg.PodUID]int{"a": 1}, PodLists: 2, Lists: 3}: r.Counts(),
	} {
		if !reflect.DeepEqual(got, *want) {
			t.Errorf("counted %+v, want %+v", got, *want)
		}
	}
	if during != 1 {
		t.Errorf("%d inspections are in flight during one", during)
	}
	r.SetInspectFault(plegtest.Fail(errFault))
	r.SetPodFault("a", plegtest.Fail(errors.New("another")))
	if _, err := r.PodStatus(t.Context(), plegtest.Pod("a", "c=running"), nil); !errors.Is(err, errFault) {
		t.Errorf("the inspection failed with %v, want the fault of all inspections first", err)
	}
	r.SetInspectFault(plegtest.Fail(nil))
	if _, err := r.PodStatus(t.Context(), plegtest.Pod("a", "c=running"), nil); err == nil || err.Error() != "another" {
		t.Errorf("the inspection failed with %v, want the fault of the pod", err)
	}
	r.SetInspectFault(plegtest.Panic("no"))
	func() {
		defer func() { _ = recover() }()
		_, _ = r.PodStatus(t.Context(), plegtest.Pod("a", "c=running"), nil)
	}()
	if c := r.Counts(); c.InFlight != 0 || c.Inspections["a"] != 4 {
		t.Errorf("counted %+v after inspections that failed or panicked, want 4 and none in flight", c)
	}
}

// Each word is a container or a sandbox, in the pod and in its status.
func TestPodAndStatus(t *testing.T) {
	pod := plegtest.Pod("web/a", "c=created d=exited:0 /s=running /t=exited u=unknown")
	named := func(id, name string, state pleg.State) *pleg.Container {
		return &pleg.Container{ID: pleg.ContainerID(id), Name: name, State: state}
	}
	want := &pleg.Pod{
		UID: "web/a", Name: "name-web/a", Namespace: "web", Labels: map[string]string{"pod": "a"}, Native: pod.Native,
		Containers: []*pleg.Container{named("c", "of-c", pleg.StateCreated), named("d", "of-d", pleg.StateExited), named("u", "of-u", pleg.StateUnknown)},
		Sandboxes:  []*pleg.Container{named("s", "name-web/a", pleg.StateRunning), named("t", "name-web/a", pleg.StateExited)},
	}
	for _, c := range want.Containers {
		c.SandboxID = "s"
	}
	if !reflect.DeepEqual(pod, want) {
		t.Errorf("the pod is %+v, want %+v", pod, want)
	}
	pod.Containers[1].CreatedAt, pod.Sandboxes[1].CreatedAt = time.Unix(5, 0), time.Unix(7, 0)
	if got, want := plegtest.Status(pod, "10.0.0.7", "fd00::7"), (&pleg.PodStatus{
		UID: "web/a", Name: "name-web/a", Namespace: "web", IPs: []string{"10.0.0.7", "fd00::7"},
		Containers: []*pleg.ContainerStatus{
			{ID: "c", Name: "of-c", State: pleg.StateCreated},
			{ID: "d", Name: "of-d", State: pleg.StateExited, CreatedAt: time.Unix(5, 0), Reason: "Completed"},
			{ID: "u", Name: "of-u", State: pleg.StateUnknown},
		},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: "s", Ready: true, IPs: []string{"10.0.0.7", "fd00::7"}, Labels: pod.Labels},
			{ID: "t", CreatedAt: time.Unix(7, 0), IPs: []string{"10.0.0.7", "fd00::7"}, Labels: pod.Labels},
		},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("the status is %+v, want %+v", got, want)
	}
	r := plegtest.New()
	r.Set("a", "c=exited /s=exited") // since it was listed
	for words, want := range map[string][]string{"c=running /s=running": {"10.0.0.1"}, "c=running /s=created /t=exited": nil, "/s=unknown": nil} {
		if s, err := r.PodStatus(t.Context(), plegtest.Pod("a", words), nil); err != nil || !reflect.DeepEqual(s.IPs, want) || s.Sandboxes[0].Ready != (want != nil) {
			t.Errorf("%s: the status is %+v, %v, want the addresses %q", words, s, err, want)
		}
	}
	exact := &pleg.PodStatus{UID: "other"}
	r.SetDetails(func(s *pleg.PodStatus) { s.Name = "detail" })
	for n, set := range []*pleg.PodStatus{exact, nil} {
		r.SetStatus("a", set)
		if s, err := r.PodStatus(t.Context(), plegtest.Pod("a", "c=running"), nil); err != nil || (s == exact) != (n == 0) || s.Name != []string{"", "detail"}[n] {
			t.Errorf("the status is %+v, %v, want %v without details, or that of the pod with them", s, err, set)
		}
	}
	for _, uid := range []pleg.PodUID{"a", "b", "c", "d"} {
		r.Set(uid, "c=running")
	}
	r.Remove("b")
	r.Set("d", " ")
	r.Set("a", "c=exited") // it keeps its place
	r.Remove("other")
	if pods, err := r.ListPods(t.Context()); err != nil || len(pods) != 2 || pods[0].UID != "a" || pods[1].UID != "c" {
		t.Errorf("the list is %v, %v, want the pods a and c", pods, err)
	}
	got := plegtest.Words(
		pleg.Event{Type: pleg.ContainerDied, ContainerID: "c"}, pleg.Event{Type: pleg.ContainerStarted, ContainerID: "s", Sandbox: true},
		pleg.Event{Type: pleg.PodSync, ContainerID: "x"}, pleg.Event{Type: pleg.NetworkFailed, ContainerID: "s", Sandbox: true}, pleg.Event{Type: pleg.Gap},
	)
	if want := "Died(c) Started(/s) PodSync NetworkFailed(/s) Gap()"; got != want {
		t.Errorf("the events are %s, want %s", got, want)
	}
}

// A stream that ends while it has an event gets no other one, and nobody waits for it. Other streams
// get all events.
func TestEventForAStreamThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plegtest.New()
		ofOther, ofLater := 0, 0 // than the stream that ends
		go func() { _ = r.WatchEvents(t.Context(), func() {}, func(pleg.Hint) { ofOther++ }) }()
		synctest.Wait()
		for range 20 { // a stream with an event and an end may deliver either
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- r.WatchEvents(ctx, func() {}, func(pleg.Hint) { time.Sleep(time.Second); cancel(errFault) })
			}()
			synctest.Wait()
			later, end := context.WithCancel(t.Context())
			go func() { _ = r.WatchEvents(later, func() {}, func(pleg.Hint) { ofLater++ }) }()
			synctest.Wait()
			r.AnnounceHint(pleg.Hint{})
			r.AnnounceHint(pleg.Hint{})
			synctest.Wait()
			end()
			if err := <-ended; !errors.Is(err, errFault) {
				t.Errorf("the stream ended with %v, want the cause of its context", err)
			}
		}
		ended := make(chan error, 1)
		go func() {
			ended <- r.WatchEvents(t.Context(), func() {}, func(pleg.Hint) { r.EndWatches(errFault); r.EndWatches(errors.New("another")) })
		}()
		synctest.Wait()
		r.AnnounceHint(pleg.Hint{})
		if err := <-ended; !errors.Is(err, errFault) {
			t.Errorf("the stream ended with %v, want %v", err, errFault)
		}
		if err := r.WatchEvents(t.Context(), func() { r.EndWatches(errFault) }, nil); !errors.Is(err, errFault) {
			t.Errorf("a stream that was ended as soon as it was open ended with %v", err)
		}
		if synctest.Wait(); ofOther != 41 || ofLater != 40 {
			t.Errorf("other streams got %d and %d events, want 41 and 40", ofOther, ofLater)
		}
	})
}

// A list contains the pods of the moment at which it began, and belongs to its caller.
func TestListIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plegtest.New()
		exact := []*pleg.Pod{plegtest.Pod("b", "c=running")}
		r.Set("a", "c=running")
		r.SetListFault(plegtest.Delay(time.Second))
		time.AfterFunc(time.Millisecond, func() { r.SetList(exact) })
		for n, want := range []pleg.PodUID{"a", "b", "b"} {
			got, err := r.ListPods(t.Context())
			if err != nil || len(got) != 1 || got[0] == nil || got[0].UID != want {
				t.Fatalf("list %d: %v, %v, want pod %s", n, got, err, want)
			}
			clear(got)
		}
		r.SetListFault(nil)
		r.SetList([]*pleg.Pod{})
		if got, err := r.ListPods(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("a list without pods: %v, %v", got, err)
		}
		r.SetList(nil)
		if got, err := r.ListPods(t.Context()); err != nil || len(got) != 1 || got[0].UID != "a" {
			t.Errorf("the pods of the runtime again: %v, %v, want pod a", got, err)
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
