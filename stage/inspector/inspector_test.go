package inspector_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The status is newer than the list: a container may be gone, or in another state.
func TestEventsHaveImageAndTimesOfTheStatus(t *testing.T) {
	const image = "registry.example/app:1"
	started, finished := at(-20), at(-10)
	running := &pleg.ContainerStatus{ID: "c", State: pleg.StateRunning, Image: image, StartedAt: started}
	exited := &pleg.ContainerStatus{ID: "c", State: pleg.StateExited, Image: image, StartedAt: started, FinishedAt: finished}
	for name, test := range map[string]struct {
		event    pleg.Event
		status   *pleg.ContainerStatus
		image    string
		from, to time.Time
		code     bool // with an exit code
	}{
		"created":                       {event: pleg.Event{Type: pleg.ContainerCreated}, status: &pleg.ContainerStatus{ID: "c", Image: image}, image: image},
		"started":                       {event: pleg.Event{Type: pleg.ContainerStarted}, status: running, image: image, from: started},
		"started, exited since":         {event: pleg.Event{Type: pleg.ContainerStarted}, status: exited, image: image, from: started},
		"died":                          {event: pleg.Event{Type: pleg.ContainerDied}, status: exited, image: image, from: started, to: finished, code: true},
		"died, said to run":             {event: pleg.Event{Type: pleg.ContainerDied}, status: running, image: image, from: started},
		"died, and the status has none": {event: pleg.Event{Type: pleg.ContainerDied}, status: &pleg.ContainerStatus{ID: "c", State: pleg.StateExited}, code: true},
		"died and gone since":           {event: pleg.Event{Type: pleg.ContainerDied}, status: &pleg.ContainerStatus{ID: "other", Image: image}},
		"removed":                       {event: pleg.Event{Type: pleg.ContainerRemoved}, status: exited},
		"ran":                           {event: pleg.Event{Type: stage.ContainerRan}, status: exited, image: image, from: started},
		"ran, but never started":        {event: pleg.Event{Type: stage.ContainerRan}, status: &pleg.ContainerStatus{ID: "c", State: pleg.StateExited}},
		"ran and gone since":            {event: pleg.Event{Type: stage.ContainerRan}, status: &pleg.ContainerStatus{ID: "other", StartedAt: started}},
		"a sandbox":                     {event: pleg.Event{Type: pleg.ContainerStarted, Sandbox: true}, status: running},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			f.cache.AnnounceRemoved(true)
			f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{test.status}})
			c := change(1, plegtest.Pod("a", "c=running"))
			test.event.ContainerID = "c"
			c.Events = []pleg.Event{test.event}
			start, wait := time.Now(), time.Duration(0)
			if test.event.Type == pleg.ContainerDied && test.status.ID != "c" {
				wait = 2 * time.Second // for the event of its end
			}
			_, o, _ := f.do(c)
			if got := time.Since(start); got != wait {
				t.Errorf("published after %v, want %v", got, wait)
			}
			if test.event.Type == stage.ContainerRan {
				if told := len(o.Events) == 1 && o.Events[0].Type == pleg.ContainerStarted; told == test.from.IsZero() || !told && len(o.Events) > 0 {
					t.Errorf("events %v, want a start: %v", o.Events, !test.from.IsZero())
				}
				if test.from.IsZero() {
					return
				}
			}
			ev := o.Events[0]
			if got := ev.ExitCode != nil; got != test.code {
				t.Errorf("event has an exit code: %v, want %v", got, test.code)
			}
			if ev.Image != test.image || !ev.StartedAt.Equal(test.from) || !ev.FinishedAt.Equal(test.to) {
				t.Errorf("event has %q from %v to %v, want %q from %v to %v", ev.Image, ev.StartedAt, ev.FinishedAt, test.image, test.from, test.to)
			}
		})
	}
}

// A container that never ran has no start. Its end comes, and what else has happened.
func TestEndWithoutAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		f.runtime.SetDetails(func(s *pleg.PodStatus) { s.Containers[0].StartedAt = time.Time{} })
		c := change(1, plegtest.Pod("a", "c=exited d=exited"))
		c.Events = slices.Insert(c.Events, 0, pleg.Event{Type: stage.ContainerRan, PodUID: "a", ContainerID: "c"})
		if _, o, _ := f.do(c); plegtest.Words(o.Events...) != "Died(c) Died(d)" {
			t.Errorf("events %q, want both ends", plegtest.Words(o.Events...))
		}
	})
}

// The end of a pod that is gone has what the pod's last status knows of its containers.
func TestEndOfAGonePodHasItsLastStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		f.runtime.SetDetails(func(s *pleg.PodStatus) { s.Containers[0].Image, s.Containers[0].StartedAt = "app:1", at(-20) })
		f.do(change(1, plegtest.Pod("a", "c=running")))
		f.gone <- stage.Change{UID: "a", At: at(2), Events: []pleg.Event{{Type: pleg.ContainerDied, PodUID: "a", ContainerID: "c"}}}
		o := <-f.outcomes
		if ev := o.Events[0]; ev.Image != "app:1" || !ev.StartedAt.Equal(at(-20)) {
			t.Errorf("%+v, want the image and the start of the last status", ev)
		}
		<-f.settled
	})
}

// A container that appears after a list and is gone before the next would stay in the cache: the
// two lists do not differ. The kubelet's cache keeps it.
func TestStatusHasOnlyWhatWasObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := plegtest.Status(plegtest.Pod("a", "c=running new=running /s=running /t=running"))
		status.UID = "" // a runtime may leave it to the pipeline
		f := newFixture(t, nil, inspector.Options{})
		f.runtime.SetStatus("a", status)
		_, o, _ := f.do(change(1, plegtest.Pod("a", "c=running /s=running")))
		cached, _ := f.cache.Get("a")
		for _, s := range []*pleg.PodStatus{o.Status, cached} {
			if len(s.Containers) != 1 || s.Container("c") == nil || len(s.Sandboxes) != 1 || s.Sandbox("s") == nil {
				t.Errorf("status %+v, want c and s", s)
			}
			if s.UID != "a" || !s.ObservedAt.Equal(at(1)) {
				t.Errorf("status of pod %q at %v, want a at the time before its list, %v", s.UID, s.ObservedAt, at(1))
			}
		}
		if slices.Contains(status.Containers, nil) || slices.Contains(status.Sandboxes, nil) {
			t.Error("the status of the runtime was changed")
		}
	})
}

// A reason that arrives after the end, such as OOMKilled, is an event of its own.
func TestLateReasonIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		inspect := func(n int, listed string, c *pleg.ContainerStatus, events ...pleg.Event) stage.Outcome {
			f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{c}})
			change := change(n, plegtest.Pod("a", listed))
			change.Events = events
			_, o, _ := f.do(change)
			return o
		}
		runs := &pleg.ContainerStatus{ID: "c", State: pleg.StateRunning}
		inspect(0, "c=running", runs)
		// the list does not show the end yet
		if o := inspect(0, "c=running", &pleg.ContainerStatus{ID: "c", State: pleg.StateExited, ExitCode: 137, Reason: "Error"}); len(o.Events) > 0 {
			t.Errorf("got %+v before the end was listed", o.Events)
		}
		for n, step := range []struct {
			reason string
			code   int32
			event  pleg.EventType // of this change, if any
			want   string
		}{
			{"Error", 137, "", "Corrected(c)"},
			{"Error", 137, "", ""},
			{"OOMKilled", 137, "", "Corrected(c)"},
			{"OOMKilled", 137, "", ""},
			{"OOMKilled", 1, "", "Corrected(c)"},
			{"Error", 137, pleg.ContainerDied, "Died(c)"},
			{"OOMKilled", 137, stage.ContainerChanged, "Changed(c) Corrected(c)"},
		} {
			ended := &pleg.ContainerStatus{ID: "c", Attempt: 2, State: pleg.StateExited, ExitCode: step.code, Reason: step.reason}
			var events []pleg.Event
			if step.event != "" {
				events = []pleg.Event{{Type: step.event, PodUID: "a", ContainerID: "c", Attempt: 2}}
			}
			o := inspect(n+1, "c=exited", ended, events...)
			if got := plegtest.Words(o.Events...); got != step.want {
				t.Errorf("step %d: got %q, want %q", n, got, step.want)
			}
			for _, ev := range o.Events {
				if ev.Type != stage.ContainerChanged && (ev.Reason != step.reason || ev.Attempt != 2 || ev.ExitCode == nil || *ev.ExitCode != step.code) {
					t.Errorf("step %d: got %+v, want the new reason", n, ev)
				}
			}
		}
		if o := inspect(9, "c=exited", runs); len(o.Events) > 0 {
			t.Errorf("got %+v of a container that runs again", o.Events)
		}
	})
}

// A status that contradicts its list twice is a contradiction since the first time. Once the two agree, the
// event of the container is corrected.
func TestContradictionsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		container := func(id pleg.ContainerID, state pleg.State) *pleg.Container {
			return &pleg.Container{ID: id, Name: "name-" + string(id), State: state}
		}
		pod := &pleg.Pod{
			UID: "u", Name: "web-0", Namespace: "shop",
			Containers: []*pleg.Container{container("a", pleg.StateRunning), container("b", pleg.StateExited), container("c", pleg.StateUnknown), container("d", pleg.StateCreated)},
			Sandboxes:  []*pleg.Container{container("s", pleg.StateRunning), container("t", pleg.StateExited), container("u", pleg.StateRunning), container("v", pleg.StateExited)},
		}
		status := func(a, b, d pleg.State) *pleg.PodStatus {
			s := &pleg.PodStatus{UID: "u", Containers: []*pleg.ContainerStatus{
				{ID: "b", Name: "name-b", Attempt: 2, State: b, Image: "image-b"}, {ID: "d", State: d},
			}, Sandboxes: []*pleg.SandboxStatus{{ID: "s", HostNetwork: true}, {ID: "t", Ready: true, HostNetwork: true}, {ID: "v", HostNetwork: true}}}
			if a != pleg.StateUnknown {
				s.Containers = append(s.Containers, &pleg.ContainerStatus{ID: "a", Name: "name-a", Attempt: 1, State: a})
			}
			return s
		}
		differs := func(id pleg.ContainerID, sandbox bool, listed, says pleg.State, missing bool, since time.Time) pleg.Contradiction {
			return pleg.Contradiction{
				UID: "u", Namespace: "shop", Name: "web-0", Container: id, ContainerName: "name-" + string(id), Sandbox: sandbox, Listed: listed, Status: says, Missing: missing, Since: since,
			}
		}
		first, last := time.Now(), time.Now().Add(2*time.Second)
		sandboxes := []pleg.Contradiction{
			differs("s", true, pleg.StateRunning, pleg.StateExited, false, first), differs("t", true, pleg.StateExited, pleg.StateRunning, false, first),
			differs("u", true, pleg.StateRunning, pleg.StateUnknown, true, first),
		}
		a, b := differs("a", false, pleg.StateRunning, pleg.StateUnknown, true, first), differs("b", false, pleg.StateExited, pleg.StateRunning, false, first)
		all := append([]pleg.Contradiction{a, b}, sandboxes...)
		for n, step := range []struct {
			status *pleg.PodStatus
			want   []pleg.Contradiction
			words  string
		}{
			{status(pleg.StateUnknown, pleg.StateRunning, pleg.StateCreated), nil, "Started(other)"},
			{status(pleg.StateUnknown, pleg.StateRunning, pleg.StateCreated), all, "Started(other)"},
			{status(pleg.StateRunning, pleg.StateRunning, pleg.StateRunning), append(append([]pleg.Contradiction{b}, sandboxes...), differs("d", false, pleg.StateCreated, pleg.StateRunning, false, last)), "Started(other) Corrected(a)"},
			{status(pleg.StateRunning, pleg.StateExited, pleg.StateCreated), sandboxes, "Started(other) Corrected(b)"},
			{status(pleg.StateRunning, pleg.StateExited, pleg.StateUnknown), append(slices.Clip(sandboxes), differs("d", false, pleg.StateCreated, pleg.StateUnknown, false, last.Add(2*time.Second))), "Started(other)"},
		} {
			f.runtime.SetStatus("u", step.status)
			c := stage.Change{UID: "u", Pod: pod, At: at(n), Events: []pleg.Event{{Type: pleg.ContainerStarted, PodUID: "u", ContainerID: "other"}}}
			s, o, _ := f.do(c)
			if s.How != stage.Contradicted {
				t.Errorf("step %d: settled %+v, want a contradiction", n, s)
			}
			if got := f.inspector.State().Contradictions; !slices.Equal(got, step.want) {
				t.Errorf("step %d:\ngot  %+v\nwant %+v", n, got, step.want)
			}
			if got := plegtest.Words(o.Events...); got != step.words {
				t.Errorf("step %d: events %q, want %q", n, got, step.words)
			}
			if n == 3 && len(o.Events) == 2 {
				got, code := o.Events[1], o.Events[1].ExitCode
				want := pleg.Event{
					Type: pleg.ContainerCorrected, PodUID: "u", PodName: "web-0", PodNamespace: "shop", ContainerID: "b", ContainerName: "name-b", Attempt: 2, ObservedAt: at(3), Image: "image-b",
				}
				if got.ExitCode = nil; code == nil || *code != 0 || !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, code %v, want %+v", got, code, want)
				}
			}
			time.Sleep(time.Second)
		}
		f.runtime.SetStatus("u", status(pleg.StateRunning, pleg.StateExited, pleg.StateCreated))
		pod.Sandboxes = pod.Sandboxes[3:]
		if s, _, _ := f.do(stage.Change{UID: "u", Pod: pod, At: at(9)}); s.How != stage.Committed || len(f.inspector.State().Contradictions) > 0 {
			t.Errorf("settled %+v, %+v, want that both agree", s, f.inspector.State().Contradictions)
		}
	})
}

// The end of a container that is removed before its inspection comes from an event.
func TestEndHasTheStatusOfAnEvent(t *testing.T) {
	exited := func(code int32) *pleg.ContainerStatus {
		return &pleg.ContainerStatus{ID: "c", State: pleg.StateExited, StartedAt: at(-20), ExitCode: code}
	}
	for name, tt := range map[string]struct {
		last, now []*pleg.ContainerStatus // of the last inspection and of this one
		want      int32                   // 0 for none
	}{
		"only the event told it":         {nil, nil, 137},
		"the last inspection told more":  {[]*pleg.ContainerStatus{exited(9)}, nil, 9},
		"the status has not heard of it": {nil, []*pleg.ContainerStatus{{ID: "c", State: pleg.StateRunning, StartedAt: at(-20)}}, 137},
		"the event was of another life":  {nil, []*pleg.ContainerStatus{{ID: "c", State: pleg.StateRunning, StartedAt: at(-5)}}, 0},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			f.cache.KeepRemoved(exited(137))
			f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Containers: tt.last})
			f.do(change(1, plegtest.Pod("a", "c=running")))
			f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Containers: tt.now})
			c := change(2, plegtest.Pod("a", "c=exited"))
			c.Events = slices.Insert(c.Events, 0, pleg.Event{Type: stage.ContainerRan, PodUID: "a", ContainerID: "c"})
			_, o, _ := f.do(c)
			if words := plegtest.Words(o.Events...); words != "Started(c) Died(c)" {
				t.Fatalf("events %q, want the start and the end", words)
			}
			if code := o.Events[1].ExitCode; (code != nil) != (tt.want != 0) || code != nil && *code != tt.want {
				t.Errorf("exit code %v, want %d", code, tt.want)
			}
		})
	}
}

// The start of a container that runs again is that of its status, not of the life before.
func TestStartIsOfThisLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		for n, now := range []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited, StartedAt: at(-20)}, {ID: "c", State: pleg.StateRunning, StartedAt: at(-5)}} {
			f.runtime.SetStatus("a", &pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{now}})
			c := change(n, plegtest.Pod("a", "c=running"))
			c.Events = []pleg.Event{{Type: pleg.ContainerStarted, PodUID: "a", ContainerID: "c"}}
			if _, o, _ := f.do(c); !o.Events[0].StartedAt.Equal(now.StartedAt) {
				t.Errorf("started at %v, want %v", o.Events[0].StartedAt, now.StartedAt)
			}
		}
	})
}

func TestInspectionGetsTheLastSuccessfulStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*pleg.PodStatus
		fail := false
		f := newFixture(t, func(_ context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
			got = append(got, last)
			if fail {
				return nil, errInspect
			}
			return plegtest.Status(pod), nil
		}, inspector.Options{})
		pod := plegtest.Pod("a", "c=exited")
		_, first, _ := f.do(change(1, pod))
		fail = true
		f.do(change(2, pod))
		retry := change(2, pod)
		retry.Retry = true
		f.retry <- retry
		f.end()
		fail = false
		f.do(change(3, pod))
		reinspect := change(4, pod)
		reinspect.Reinspect = true
		f.do(reinspect)
		want := []*pleg.PodStatus{nil, first.Status, first.Status, first.Status, nil}
		for n := range want {
			if got[n] != want[n] {
				t.Errorf("inspection %d got %+v, want %+v", n, got[n], want[n])
			}
		}
	})
}

// An inspection that was overtaken is reported early, any other inspection once nobody waits for
// it. It is overdue from HungAfter until it ends.
func TestHangIsReportedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		overtaken bool
		at        time.Duration
	}{"overtaken": {true, hungAfter / 2}, "not overtaken": {false, 5 * hungAfter}} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, hanging(nil), inspector.Options{Inspectors: 4, HungAfter: hungAfter / 2})
			began := time.Now()
			f.inspect <- one("hung")
			time.Sleep(hungAfter / 4)
			if tc.overtaken {
				f.do(one("quick"))
			}
			requireOverdue := func(want ...pleg.Inspection) {
				t.Helper()
				synctest.Wait()
				if s := f.inspector.State(); !slices.Equal(s.Overdue, want) || s.InFlight != 1 {
					t.Errorf("after %v: %+v, want one in flight, overdue: %+v", time.Since(began), s, want)
				}
			}
			time.Sleep(hungAfter/4 - 1)
			requireOverdue()
			time.Sleep(time.Nanosecond)
			requireOverdue(pleg.Inspection{UID: "hung", Namespace: "ns", Name: "name-hung", Started: began, Hung: tc.overtaken})
			if s := <-f.settled; s != (stage.Settled{UID: "hung", How: stage.Hangs}) || time.Since(began) != tc.at {
				t.Errorf("settled %+v after %v, want that it hangs after %v", s, time.Since(began), tc.at)
			}
			f.inspect <- one("quick")
			if s := <-f.settled; s.UID != "quick" {
				t.Errorf("settled %+v, want the other one", s)
			}
			if s := <-f.settled; s.How != stage.FailedHung || s.Took != timeout {
				t.Errorf("settled %+v, want the end after %v", s, timeout)
			}
			f.logged.RequireLines(t, 0, "inspection failed") // the differ logs it
		})
	}
}

// Of several inspections each is overdue, whether or not it counts as hung, and also once that is reported.
func TestSeveralAreOverdue(t *testing.T) {
	testHanging(t, 4, func(t *testing.T, f *fixture) {
		for _, uid := range uids("hung", 3) {
			f.inspect <- one(uid)
			time.Sleep(hungAfter / 4)
		}
		want := func(overdue, hung int) {
			t.Helper()
			time.Sleep(hungAfter)
			synctest.Wait()
			got := f.inspector.State().Overdue
			if len(got) != overdue || slices.ContainsFunc(got, func(i pleg.Inspection) bool { return i.Hung != (hung > 0) }) {
				t.Errorf("overdue are %+v, want %d, of which %d hang", got, overdue, hung)
			}
			f.requireMetric(t, "pleg_hung_inspections", float64(hung))
		}
		want(3, 0)
		f.do(one("quick")) // its end shows that they hang
		want(3, 3)
		f.do(one("quick"))
		want(3, 3)
	})
}

// Between the end of a hung inspection and the quarantine of its pod, the pod is always in one of
// the two: otherwise it would count as failed, and the trouble as over.
func TestHangIsVisibleUntilTheQuarantine(t *testing.T) {
	late := func(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
		time.Sleep(2 * hungAfter)
		return nil, errInspect
	}
	for how, runtime := range map[stage.Ending]fakeRuntime{stage.FailedHung: hanging(nil), stage.FailedLate: late} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixtureWithBuffer(t, runtime, inspector.Options{HungAfter: hungAfter}, 0)
			f.inspect <- one("hung")
			if s := f.end(); s.How != how {
				t.Errorf("settled %+v, want %v", s, how)
			}
			synctest.Wait() // the differ applies its messages
			if overdue := f.inspector.State().Overdue; len(overdue) != 1 {
				t.Errorf("overdue %+v, want the inspection that hung", overdue)
			}
			<-f.settled
			synctest.Wait()
			if overdue := f.inspector.State().Overdue; len(overdue) != 0 {
				t.Errorf("overdue %+v, want none", overdue)
			}
		})
	}
}

func TestRetryMayHaveAShorterTimeout(t *testing.T) {
	for own, want := range map[time.Duration]time.Duration{0: timeout, 3 * time.Second: 3 * time.Second, time.Hour: timeout} {
		kit.Bubble(t, own.String(), func(t *testing.T) {
			f := newFixture(t, hanging(nil), inspector.Options{})
			c := one("hung")
			c.Retry, c.Timeout = true, own
			f.retry <- c
			if s := <-f.settled; s.Took != want || s.How != stage.FailedHung {
				t.Errorf("settled %+v, want the timeout of %v", s, want)
			}
			if _, err := f.cache.Get("hung"); !errors.As(err, new(*pleg.InspectionError)) {
				t.Errorf("the cache has %v, want the failure", err)
			}
			f.requireMetric(t, "pleg_inspection_errors_total", 1)
			kit.RequireSum(t, f.metrics, want.Seconds(), "pleg_inspection_duration_seconds")
		})
	}
}

// TestFailureIsLoggedOnce uses a pod whose inspections fail, then one succeeds.
func TestFailureIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		inspect := func(fault plegtest.Fault) {
			f.runtime.SetInspectFault(fault)
			f.do(one("a"))
		}
		failing := func(context.Context) error { return errInspect }
		const line = `level=WARN msg="inspection failed, will be retried" stage=inspector podUID=a pod=ns/name-a err="inspect pod ns/name-a (a): inspection failed"`
		inspect(failing)
		inspect(failing)
		f.logged.RequireLines(t, 1, line)
		inspect(nil)
		inspect(failing)
		f.logged.RequireLines(t, 2, line)
		f.gone <- stage.Change{UID: "a", Last: one("a").Pod}
		<-f.settled
		inspect(failing)
		f.logged.RequireLines(t, 3, line)
	})
}
