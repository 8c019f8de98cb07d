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
)

func TestInspectsAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, asListed, inspector.Options{})
		pod := plegtest.Pod("a", "c=exited d=running /s=running")
		s, o, ok := b.do(change(1, pod))
		if s.UID != "a" || s.Err != nil || !ok {
			t.Fatalf("settled %+v with outcome %v, want pod a with one", s, ok)
		}
		w, _ := b.cache.get("a")
		if w.status == nil || w.status != o.Status || !w.at.Equal(at(1)) || !w.status.ObservedAt.Equal(at(1)) {
			t.Errorf("cache has %+v at %v, want the outcome's status, observed at the listing %v", w.status, w.at, at(1))
		}
		if o.UID != "a" || o.Pod != pod || len(o.Events) != 1 {
			t.Fatalf("outcome = %+v, want that of the change", o)
		}
		if ev := o.Events[0]; ev.ExitCode == nil || *ev.ExitCode != 3 || ev.Reason != "Error" {
			t.Errorf("event = %+v, want the exit code and the reason of the status", ev)
		}
	})
}

func TestExitCodeOnlyOfWhatTheStatusFoundEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			s := plegtest.Status(pod)
			s.Containers = s.Containers[1:]           // the first is gone meanwhile
			s.Containers[0].State = pleg.StateRunning // and the second not ended
			return s, nil
		}, inspector.Options{})
		_, o, _ := b.do(change(1, plegtest.Pod("a", "c=exited d=exited e=exited")))
		for n, want := range []bool{false, false, true} {
			if got := o.Events[n].ExitCode != nil; got != want {
				t.Errorf("event %d has an exit code: %v, want %v", n, got, want)
			}
		}
	})
}

// The first inspection of a pod fails, and the second works.
func TestFailedInspectionIsThatPodsError(t *testing.T) {
	for name, tc := range map[string]struct {
		rt   fakeRuntime
		is   error
		text string
		took time.Duration
	}{
		"error": {
			rt: func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) { return nil, errInspect },
			is: errInspect, text: "inspect pod ns/name-a (a): inspection went wrong",
		},
		"panic": {
			rt:   func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) { panic("no") },
			text: "inspect pod ns/name-a (a): panic: no",
		},
		"nothing": {
			rt:   func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) { return nil, nil },
			text: "neither a status nor an error",
		},
		"nil container": {
			rt: func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
				return &pleg.PodStatus{Containers: []*pleg.ContainerStatus{nil}}, nil
			},
			text: "nil container or sandbox",
		},
		"nil sandbox": {
			rt: func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
				return &pleg.PodStatus{Sandboxes: []*pleg.SandboxStatus{nil}}, nil
			},
			text: "nil container or sandbox",
		},
		"no answer": {
			rt: func(ctx context.Context, _ *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			is: context.DeadlineExceeded, text: "no answer within the inspect timeout of 10s", took: timeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := tc.rt
				b := newBed(t, func(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
					return rt(ctx, pod, last)
				}, inspector.Options{})
				start := time.Now()
				s, o, ok := b.do(change(1, plegtest.Pod("a", "c=exited")))
				if s.Err == nil || !strings.Contains(s.Err.Error(), tc.text) || tc.is != nil && !errors.Is(s.Err, tc.is) {
					t.Errorf("settled with %v, want %q", s.Err, tc.text)
				}
				if ok {
					t.Errorf("outcome %+v of a failed inspection", o)
				}
				if w, _ := b.cache.get("a"); w.status != nil || !errors.Is(w.err, s.Err) || !w.at.Equal(at(1)) {
					t.Errorf("cache has %+v, want the error and the time of the listing", w)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
				rt = asListed
				if s, _, ok := b.do(change(2, plegtest.Pod("a", "c=exited"))); s.Err != nil || !ok {
					t.Errorf("retry settled with %v, want an outcome", s.Err)
				}
			})
		})
	}
}

func TestPoolIsBounded(t *testing.T) {
	const bound = 3
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		inFlight, peak := make(chan int, 1), 0
		inFlight <- 0
		b := newBed(t, func(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			n := <-inFlight + 1
			peak = max(peak, n)
			inFlight <- n
			<-release
			inFlight <- <-inFlight - 1
			return plegtest.Status(pod), nil
		}, inspector.Options{Inspectors: bound})
		next := func(n int) stage.Change { return change(1, plegtest.Pod(pleg.PodUID(fmt.Sprint(n)), "")) }
		for n := range bound {
			if !b.accepts(next(n)) {
				t.Fatalf("change %d not accepted, want %d in flight", n, bound)
			}
		}
		if b.accepts(next(3)) {
			t.Fatalf("one more than %d accepted", bound)
		}
		// What needs no inspection passes all the same.
		b.known <- stage.Change{UID: "gone", At: at(1)}
		if s := <-b.settled; s.UID != "gone" {
			t.Errorf("settled %+v, want the pod that is gone", s)
		}
		release <- struct{}{}
		<-b.settled
		if !b.accepts(next(3)) {
			t.Error("no change accepted once an inspector was free")
		}
		close(release)
		for range bound {
			<-b.settled
		}
		if peak != bound {
			t.Errorf("most inspections in flight = %d, want %d", peak, bound)
		}
	})
}

func TestRemovalAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := newBed(t, func(_ context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
			calls++
			if last != nil {
				t.Errorf("inspection %d got the status of a pod that is gone: %+v", calls, last)
			}
			return plegtest.Status(pod, "10.0.0.1"), nil
		}, inspector.Options{})
		b.do(change(1, plegtest.Pod("a", "c=exited /s=exited")))
		b.known <- stage.Change{UID: "a", At: at(2), Events: []pleg.Event{{Type: pleg.ContainerDied, ContainerID: "c"}}}
		if s := <-b.settled; s.UID != "a" || s.Err != nil {
			t.Errorf("settled %+v, want pod a", s)
		}
		o := <-b.outcomes
		if o.UID != "a" || o.Pod != nil || o.Status != nil || len(o.Events) != 1 {
			t.Errorf("outcome = %+v, want the events alone", o)
		}
		if code := o.Events[0].ExitCode; code == nil || *code != 3 {
			t.Errorf("exit code = %v, want the last known one, 3", code)
		}
		if w, _ := b.cache.get("a"); !w.deleted || !w.at.Equal(at(2)) {
			t.Errorf("cache has %+v, want the removal at %v", w, at(2))
		}
		b.do(change(3, plegtest.Pod("a", "c=running"))) // back: nothing is left of it
		if calls != 2 {
			t.Errorf("calls of the runtime = %d, want 2", calls)
		}
	})
}

func TestLastGoodStatusIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*pleg.PodStatus
		fail := false
		b := newBed(t, func(_ context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
			got = append(got, last)
			if fail {
				return nil, errInspect
			}
			return plegtest.Status(pod), nil
		}, inspector.Options{})
		pod := plegtest.Pod("a", "c=exited")
		_, first, _ := b.do(change(1, pod))
		fail = true
		b.do(change(2, pod))
		fail = false
		b.do(change(3, pod))
		anew := change(4, pod)
		anew.Anew = true
		b.do(anew)
		want := []*pleg.PodStatus{nil, first.Status, first.Status, nil}
		for n := range want {
			if got[n] != want[n] {
				t.Errorf("inspection %d got %+v, want %+v", n, got[n], want[n])
			}
		}
	})
}

func TestMarkPassesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, asListed, inspector.Options{})
		b.known <- stage.Change{UID: "a", At: at(1)}
		b.known <- stage.Change{Current: at(1)}
		if o := <-b.outcomes; o.UID != "a" {
			t.Errorf("first outcome = %+v, want the removal", o)
		}
		if o := <-b.outcomes; !o.Current.Equal(at(1)) {
			t.Errorf("second outcome = %+v, want the mark", o)
		}
		synctest.Wait()
		if len(b.settled) != 1 {
			t.Errorf("settled %d, want the removal only", len(b.settled))
		}
	})
}
