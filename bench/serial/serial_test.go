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
