package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestNewNamesTheBadOption(t *testing.T) {
	for field, o := range map[string]pipeline.Options{
		"Runtime":         {},
		"RelistPeriod":    {Runtime: newNode(), RelistPeriod: -1},
		"RelistThreshold": {Runtime: newNode(), RelistThreshold: -1},
		"RetryPeriod":     {Runtime: newNode(), RetryPeriod: -1},
		"ListTimeout":     {Runtime: newNode(), ListTimeout: -1},
		"InspectTimeout":  {Runtime: newNode(), InspectTimeout: -1},
		"HungAfter":       {Runtime: newNode(), HungAfter: -1},
		"MaxQuarantine":   {Runtime: newNode(), MaxQuarantine: -1},
		"SlowAfter":       {Runtime: newNode(), SlowAfter: -1},
		"KeepRemoved":     {Runtime: newNode(), KeepRemoved: -1},
		"Inspectors":      {Runtime: newNode(), Inspectors: -1},
		"History":         {Runtime: newNode(), History: -1},
	} {
		if _, err := pipeline.New(o); err == nil || !strings.Contains(err.Error(), "Options."+field+" ") {
			t.Errorf("New(%+v) = %v, want an error that names %s", o, err, field)
		}
	}
}

func TestRunEndsWithItsContextAndRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		events := r.subscribe(t, 10)
		r.node.set("a", "c=running")
		r.run(t)
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run beside the first = nil, want an error")
		}
		r.node.set("b", "c=running")
		r.node.on("b", hung)
		r.relist()
		if err := r.stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want the cause of its context", err)
		}
		if got := told(events)["a"]; got != "Started(c)" {
			t.Errorf("events left = %q, want those that were waiting", got)
		}
		if _, open := <-events; open {
			t.Error("the subscriber's channel is open after Run has returned")
		}
		if _, err := r.Subscribe(pipeline.SubscribeOptions{}); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("Subscribe after the end = %v, want ErrStopped", err)
		}
		if status, err := r.Cache().Get("a"); err != nil || status.Container("c") == nil {
			t.Errorf("cache after the end = %+v, %v, want what was known", status, err)
		}
		r.RequestReinspect("a") // must not block
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run after the first = nil, want an error")
		}
	})
}

func TestRunReturnsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		errEnough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errEnough)
		if err := r.Run(ctx); !errors.Is(err, errEnough) {
			t.Errorf("Run = %v, want %v", err, errEnough)
		}
	})
}

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		requireHealth := func(want string) {
			t.Helper()
			switch ok, err := r.Healthy(); {
			case ok != (want == "") || ok != (err == nil):
				t.Errorf("Healthy = %v, %v, want %q", ok, err, want)
			case want != "" && !strings.Contains(err.Error(), want):
				t.Errorf("Healthy = %q, want %q", err, want)
			}
		}
		fails := func(context.Context) ([]*pleg.Pod, error) { return nil, errInspect }
		requireHealth("pleg has yet to be successful")
		r.node.onLists(fails)
		r.run(t)
		requireHealth("pleg has yet to be successful: list pods: " + errInspect.Error())
		r.node.onLists(nil)
		r.relist()
		requireHealth("")
		r.node.onLists(fails)
		time.Sleep(pipeline.DefaultRelistThreshold)
		requireHealth("")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireHealth("pleg was last seen active 3m0.000000001s ago; threshold is 3m0s: list pods: " + errInspect.Error())
		r.node.onLists(nil)
		r.relist()
		requireHealth("")
	})
}

func TestRequestReinspectIsOnePodSyncAtTheNextRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		events := r.subscribe(t, 0)
		r.node.set("a", "c=running")
		r.run(t)
		requireTold(t, events, "a", "Started(c)")
		for range 3 {
			r.RequestReinspect("a")
		}
		r.RequestReinspect("nobody")
		requireTold(t, events)
		r.relist()
		requireTold(t, events, "a", "PodSync")
		r.relist()
		requireTold(t, events)
	})
}
