package serial_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestNewNamesTheInvalidField(t *testing.T) {
	events := make(chan pleg.Event)
	tests := []struct {
		rt   pleg.Runtime
		opts serial.Options
		want string
	}{
		{nil, serial.Options{Events: events}, "runtime"},
		{plegtest.New(), serial.Options{}, "Events"},
		{plegtest.New(), serial.Options{Events: events, InspectTimeout: -1}, "InspectTimeout"},
	}
	for _, tt := range tests {
		if _, err := serial.New(tt.rt, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New error = %v, want one about %s", err, tt.want)
		}
	}
}

func TestDiedCarriesWhatTheInspectionFound(t *testing.T) {
	exited := func(code int32) *pleg.ContainerStatus {
		return &pleg.ContainerStatus{
			ID: "c", State: pleg.StateExited, ExitCode: code, Reason: "OOMKilled", Image: "app:1", StartedAt: start, FinishedAt: start.Add(time.Minute),
		}
	}
	running := &pleg.ContainerStatus{ID: "c", State: pleg.StateRunning, Image: "app:1", StartedAt: start}
	type look struct {
		pod    string
		status *pleg.ContainerStatus // nil: the inspection did not find it
		code   int32                 // of the first event; -1 for none
		image  bool                  // whether the first event has the image and the start
	}
	tests := []struct {
		name  string
		looks []look
	}{
		{"exited", []look{{"c=running", running, -1, true}, {"c=exited", exited(137), 137, true}}},
		{"gone at the inspection", []look{{"c=running", running, -1, true}, {"c=exited", nil, -1, false}}},
		{"not yet exited at the inspection", []look{{"c=exited", running, -1, true}}},
		{"a start has none", []look{{"c=running", exited(1), -1, true}}},
		{"removed from a pod that stays", []look{{"c=running", exited(1), -1, true}, {"/s=running", nil, -1, false}}},
		{"gone with its pod while it ran", []look{{"c=running", running, -1, true}, {"", nil, -1, true}}},
		{"gone with its pod, already seen ended", []look{{"c=running", exited(3), -1, true}, {"", nil, 3, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, 10, serial.Options{})
			for i, l := range tt.looks {
				status := &pleg.PodStatus{UID: "p"}
				if l.status != nil {
					status.Containers = []*pleg.ContainerStatus{l.status}
				}
				f.runtime.SetStatus("p", status)
				f.apply(t, l.pod)
				e := f.drain()[0]
				if l.code < 0 && (e.ExitCode != nil || e.Reason != "") {
					t.Errorf("look %d: event %+v has an exit code", i, e)
				}
				if l.code < 0 && !e.FinishedAt.IsZero() || l.code >= 0 && !e.FinishedAt.Equal(start.Add(time.Minute)) {
					t.Errorf("look %d: event %+v ended at %v", i, e, e.FinishedAt)
				}
				if got := e.Image == "app:1" && e.StartedAt.Equal(start); got != l.image {
					t.Errorf("look %d: event %+v has the image and the start: %v, want %v", i, e, got, l.image)
				}
				if l.code >= 0 && (e.ExitCode == nil || *e.ExitCode != l.code || e.Reason != "OOMKilled") {
					t.Errorf("look %d: event %+v, want exit code %d and its reason", i, e, l.code)
				}
			}
		})
	}
}

func TestStatusCarriesTheTimeOfTheList(t *testing.T) {
	f := newFixture(t, 10, serial.Options{})
	f.runtime.SetInspectFault(func(context.Context) error {
		f.now = f.now.Add(time.Minute)
		return nil
	})
	f.runtime.Set("p", "c0=running")
	if err := f.pleg.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, err := f.pleg.Status("p")
	if err != nil || !status.ObservedAt.Equal(start) || status.Container("c0") == nil {
		t.Errorf("Status = %+v, %v; want c0 as of %v", status, err, start)
	}
}

func TestStatusOfAGonePodIsEmpty(t *testing.T) {
	for _, emptied := range []bool{false, true} {
		f := newFixture(t, 10, serial.Options{})
		f.apply(t, "c0=running")
		if emptied {
			f.pleg.Apply(t.Context(), start, []*pleg.Pod{plegtest.Pod("p", "")})
		}
		f.pleg.Apply(t.Context(), start, nil)
		status, err := f.pleg.Status("p")
		if err != nil || status.UID != "p" || status.Name != "" {
			t.Errorf("emptied before: %v: Status = %+v, %v; want only its UID", emptied, status, err)
		}
	}
}

type ipStep struct {
	pod  string
	ips  []string
	fail bool
	want []string
}

var old = []string{"10.0.0.1"}

var ipTests = []struct {
	name  string
	looks []ipStep
}{
	{"kept once the sandbox is not ready", []ipStep{
		{"/s=running", old, false, old},
		{"/s=exited", nil, false, old},
	}},
	{"kept over a failed inspection", []ipStep{
		{"/s=running", old, false, old},
		{"/s=exited", nil, true, nil},
		{"/s=exited", nil, false, old},
	}},
	{"gone while a sandbox is ready", []ipStep{
		{"/s=running", old, false, old},
		{"/t=running /s=exited", nil, false, nil},
	}},
	{"replaced by new ones", []ipStep{
		{"/s=running", old, false, old},
		{"/s=exited", []string{"10.0.0.2"}, false, []string{"10.0.0.2"}},
	}},
	{"forgotten with the pod", []ipStep{
		{"/s=running", old, false, old},
		{"", nil, false, nil},
		{"/s=exited", nil, false, nil},
	}},
}

func TestIPs(t *testing.T) {
	for _, tt := range ipTests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, 100, serial.Options{})
			for i, l := range tt.looks {
				f.runtime.SetStatus("p", plegtest.Status(plegtest.Pod("p", l.pod), l.ips...))
				f.runtime.SetPodFault("p", nil)
				if l.fail {
					f.runtime.SetPodFault("p", plegtest.Fail(errInspect))
				}
				f.apply(t, l.pod)
				status, _ := f.pleg.Status("p")
				var got []string
				if status != nil {
					got = status.IPs
				}
				if !slices.Equal(got, l.want) {
					t.Errorf("look %d (%q): IPs %v, want %v", i, l.pod, got, l.want)
				}
			}
		})
	}
}

func TestRequestDuringTheInspectionSurvives(t *testing.T) {
	f := newFixture(t, 10, serial.Options{})
	asked := false
	f.runtime.SetInspectFault(func(context.Context) error {
		if !asked {
			asked = true
			f.pleg.RequestReinspect("p")
		}
		return nil
	})
	pods := []*pleg.Pod{plegtest.Pod("p", "c0=running")}
	for i, want := range []string{"Started(c0)", "PodSync", ""} {
		f.pleg.Apply(t.Context(), start, pods)
		if got := plegtest.Words(f.drain()...); got != want {
			t.Errorf("list %d: events %q, want %q", i, got, want)
		}
	}
}

func TestCacheIsRightThoughNobodyListens(t *testing.T) {
	f := newFixture(t, 0, serial.Options{})
	f.apply(t, "c0=running")
	if status, _ := f.pleg.Status("p"); status.Container("c0") == nil {
		t.Error("the cache does not hold the status of a discarded event")
	}
}

func TestLastOfTwoPodsWithOneUIDCounts(t *testing.T) {
	f := newFixture(t, 10, serial.Options{})
	f.pleg.Apply(t.Context(), start, []*pleg.Pod{plegtest.Pod("p", "a=running"), plegtest.Pod("q", "c=running"), plegtest.Pod("p", "b=running")})
	got := strings.Fields(plegtest.Words(f.drain()...))
	slices.Sort(got)
	if want := []string{"Started(b)", "Started(c)"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestFullChannelDiscards(t *testing.T) {
	f := newFixture(t, 2, serial.Options{})
	f.apply(t, "a=running b=running c=running d=running")
	if got := plegtest.Words(f.drain()...); got != "Started(a) Started(b)" {
		t.Errorf("events %q, want the first two", got)
	}
	f.apply(t, "a=exited b=running c=running d=running")
	if got := f.drain(); plegtest.Words(got...) != "Died(a)" || got[0].Seq != 5 {
		t.Errorf("events %+v, want Died(a) with number 5", got)
	}
}

func TestNoAnswerIsAnError(t *testing.T) {
	f := newFixture(t, 10, serial.Options{})
	f.runtime.noAnswer = true
	f.apply(t, "c0=running")
	if _, err := f.pleg.Status("p"); err == nil {
		t.Error("no error for an inspection that answered nothing")
	}
	if got := plegtest.Words(f.drain()...); got != "" {
		t.Errorf("events %q, want none", got)
	}
}

func TestHungInspectionEndsAtItsDeadlineAndDelaysTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 10, serial.Options{Clock: time.Now, InspectTimeout: time.Minute})
		f.runtime.SetPodFault("hung", plegtest.Hang)
		f.runtime.Set("hung", "h=running")
		f.runtime.Set("p", "c0=running")
		began := time.Now()
		if err := f.pleg.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("relist took %v, want the deadline of one minute", took)
		}
		if _, err := f.pleg.Status("hung"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cached error %v, want a deadline", err)
		}
		if got := plegtest.Words(f.drain()...); got != "Started(c0)" {
			t.Errorf("events %q, want those of the other pod", got)
		}
	})
}

func TestRunRelistsAPeriodAfterTheLastEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFixture(t, 10, serial.Options{Clock: time.Now})
		begun := time.Now()
		var lists []time.Duration
		f.runtime.SetInspectFault(func(context.Context) error {
			lists = append(lists, time.Since(begun))
			time.Sleep(3 * time.Second)
			return errInspect
		})
		f.runtime.Set("p", "c0=running")
		done := make(chan error)
		go func() { done <- f.pleg.Run(ctx, time.Second) }()
		time.Sleep(9 * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		want := []time.Duration{0, 4 * time.Second, 8 * time.Second}
		if !slices.Equal(lists, want) {
			t.Errorf("relists at %v, want %v", lists, want)
		}
	})
}

func TestCancelSaysNothingAboutThePods(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFixture(t, 10, serial.Options{})
	f.runtime.SetInspectFault(func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	f.pleg.Apply(ctx, start, []*pleg.Pod{plegtest.Pod("p", "c0=running"), plegtest.Pod("q", "c1=running")})
	if got := f.runtime.Counts(); len(got.Inspections) != 1 {
		t.Errorf("%+v, want no inspection after the cancel", got)
	}
	for _, uid := range []pleg.PodUID{"p", "q"} {
		if _, err := f.pleg.Status(uid); err != nil {
			t.Errorf("cached error of %s: %v, want none", uid, err)
		}
	}
}
