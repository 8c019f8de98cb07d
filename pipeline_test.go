package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewNamesTheBadOption(t *testing.T) {
	for field, o := range map[string]pipeline.Options{
		"Runtime":                {},
		"RelistPeriod":           {Runtime: plegtest.New(), RelistPeriod: -1},
		"RelistPeriodWithEvents": {Runtime: plegtest.New(), RelistPeriodWithEvents: -1},
		"RelistThreshold":        {Runtime: plegtest.New(), RelistThreshold: -1},
		"ListTimeout":            {Runtime: plegtest.New(), ListTimeout: -1},
		"InspectTimeout":         {Runtime: plegtest.New(), InspectTimeout: -1},
		"Inspectors":             {Runtime: plegtest.New(), Inspectors: -1},
	} {
		if _, err := pipeline.New(o); !errors.Is(err, pleg.ErrInvalidOption) || !strings.Contains(err.Error(), "Options."+field+" ") {
			t.Errorf("New(%+v) = %v, want an error that names %s", o, err, field)
		}
	}
}

// The shortest log has as many events as the kubelet's channel holds.
func TestShortestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{History: -1})
		const containers, kept = 600, 1000
		for _, state := range []string{"running", "exited"} {
			words := ""
			for c := range containers {
				words += fmt.Sprintf(" c%d=%s", c, state)
			}
			r.Runtime.Set("a", words)
			if r.Stop == nil {
				r.Start(t)
			}
			kit.Relist(1)
		}
		const last = 2 * containers
		for after, gap := range map[uint64]bool{last - kept - 1: true, last - kept: false} {
			sub, err := r.Subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: r.Epoch(), Seq: after}})
			kit.Must(t, err)
			if got := kit.Read(t, sub); (got[0].Type == pleg.Gap) != gap {
				t.Errorf("after event %d of %d: the first event is %s, want a Gap: %v", after, last, got[0].Type, gap)
			}
		}
	})
}

func TestRunEndsWithItsContextAndRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		events := r.Events(t, 10)
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		synctest.Wait()
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run beside the first = nil, want an error")
		}
		r.Runtime.Set("b", "c=running")
		r.Runtime.SetPodFault("b", plegtest.Hang)
		kit.Relist(1)
		if err := r.Stop(); err != nil {
			t.Errorf("Run = %v, want nil: its context has ended", err)
		}
		if got := kit.WordsByPod(kit.Drain(events))["a"]; got != "Started(c)" {
			t.Errorf("events after the end = %q, want the buffered ones", got)
		}
		if _, open := <-events; open {
			t.Error("the subscriber's channel is open after Run has returned")
		}
		if _, err := r.Subscribe(pipeline.SubscribeOptions{}); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Subscribe after the end = %v, want ErrStopped", err)
		}
		if _, err := r.Cache().GetNewerThan(t.Context(), "a", time.Now()); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("GetNewerThan after the end = %v, want ErrStopped", err)
		}
		if status, err := r.Cache().Get("a"); err != nil || status.Container("c") == nil {
			t.Errorf("cache after the end = %+v, %v, want the status of container c", status, err)
		}
		r.RequestReinspect("a") // does not block
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run after the first = nil, want an error")
		}
	})
}

// A signal, a custom cause and a deadline are normal ends, not failures.
func TestRunReturnsNilWhateverEndsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		errStop := errors.New("the test stops the pipeline")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errStop) })
		if err := r.Run(ctx); err != nil || !errors.Is(context.Cause(ctx), errStop) {
			t.Errorf("Run = %v, its context ended with %v, want nil and %v", err, context.Cause(ctx), errStop)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := kit.New(t, pipeline.Options{}).Run(ctx); err != nil {
			t.Errorf("Run to a deadline = %v, want nil", err)
		}
	})
}

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		requireHealth := func(want string) {
			t.Helper()
			switch ok, err := r.Healthy(); {
			case ok != (want == "") || ok != (err == nil):
				t.Errorf("Healthy = %v, %v, want %q", ok, err, want)
			case want != "" && !strings.Contains(err.Error(), want):
				t.Errorf("Healthy = %q, want %q", err, want)
			}
		}
		errList := errors.New("list failed")
		fails := plegtest.Fail(errList)
		requireHealth("pleg has yet to be successful")
		r.Runtime.SetListFault(fails)
		r.Start(t)
		synctest.Wait()
		requireHealth("pleg has yet to be successful: list pods: " + errList.Error())
		r.Runtime.SetListFault(nil)
		kit.Relist(1)
		requireHealth("")
		r.Runtime.SetListFault(fails)
		time.Sleep(pipeline.DefaultRelistThreshold)
		requireHealth("")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireHealth("pleg was last seen active 3m0.000000001s ago; threshold is 3m0s: list pods: " + errList.Error())
		r.Runtime.SetListFault(nil)
		kit.Relist(1)
		requireHealth("")
	})
}

func TestRequestReinspectIsOnePodSyncAtTheNextRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		synctest.Wait()
		kit.RequireEvents(t, events, "a", "Started(c)")
		for range 3 {
			r.RequestReinspect("a")
		}
		r.RequestReinspect("unknown")
		kit.RequireEvents(t, events)
		kit.Relist(1)
		kit.RequireEvents(t, events, "a", "PodSync")
		kit.Relist(1)
		kit.RequireEvents(t, events)
	})
}
