package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewNamesTheBadOption(t *testing.T) {
	for want, o := range map[string]pipeline.Options{
		"Options.Runtime is required: use cri.New or your own": {},
		"RelistPeriod":           {Runtime: plegtest.New(), RelistPeriod: -1},
		"RelistPeriodWithEvents": {Runtime: plegtest.New(), RelistPeriodWithEvents: -1},
		"RelistThreshold":        {Runtime: plegtest.New(), RelistThreshold: -1},
		"ListTimeout":            {Runtime: plegtest.New(), ListTimeout: -1},
		"InspectTimeout":         {Runtime: plegtest.New(), InspectTimeout: -1},
		"Inspectors":             {Runtime: plegtest.New(), Inspectors: -1},
		"Options.Events is require, but Options.Runtime is not an EventWatcher": {Runtime: plegtest.New().Basic(), Events: pipeline.EventsRequire},
		`Options.Events must be off, auto or require, got "on"`:                 {Runtime: plegtest.New(), Events: "on"},
	} {
		if !strings.Contains(want, " ") {
			want = "Options." + want + " must be positive, got -1"
			if o.Inspectors == 0 {
				want += "ns"
			}
		}
		want = "new pipeline: " + want
		if _, err := pipeline.New(o); !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != want {
			t.Errorf("New(%+v) = %v, want %s", o, err, want)
		}
	}
}

// The shortest log contains as many events as the kubelet's channel holds.
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
			sub, err := r.Subscribe(pleg.SubscribeOptions{After: pleg.Position{Epoch: r.Epoch(), Seq: after}})
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
		const again = "run pipeline: it has already run: create a new one"
		if err := r.Run(t.Context()); err == nil || err.Error() != again {
			t.Errorf("a second Run beside the first = %v, want %s", err, again)
		}
		r.Runtime.Set("b", "c=running")
		r.Runtime.SetPodFault("b", plegtest.Hang)
		kit.Relist(1)
		var channels []<-chan pleg.Event // many, as each is closed by a goroutine of its own
		for range 100 {
			sub, err := r.Subscribe(pleg.SubscribeOptions{})
			kit.Must(t, err)
			channels = append(channels, sub.Events())
		}
		synctest.Wait()
		if err := r.Stop(); err != nil {
			t.Errorf("Run = %v, want nil: its context has ended", err)
		}
		for n, channel := range channels {
			select {
			case ev, open := <-channel:
				if open {
					t.Errorf("channel %d has %+v, want nothing", n, ev)
				}
			default:
				t.Fatalf("channel %d is open after Run has returned", n)
			}
		}
		if s := r.Look(); s.InFlight != 0 {
			t.Errorf("%d inspections are in flight after Run has returned", s.InFlight)
		}
		if got := kit.WordsByPod(kit.Drain(events))["a"]; got != "Started(c)" {
			t.Errorf("events after the end = %q, want the buffered ones", got)
		}
		if _, err := r.Subscribe(pleg.SubscribeOptions{}); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Subscribe after the end = %v, want ErrStopped", err)
		}
		if _, err := r.Cache().GetNewerThan(t.Context(), "a", time.Now()); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("GetNewerThan after the end = %v, want ErrStopped", err)
		}
		if status, err := r.Cache().Get("a"); err != nil || status.Container("c") == nil {
			t.Errorf("cache after the end = %+v, %v, want the status of container c", status, err)
		}
		if c, err := r.Lookup(t.Context(), lookup.Query{Container: "c"}); err != nil || c.PodUID != "a" {
			t.Errorf("Lookup after the end = %+v, %v, want container c", c, err)
		}
		if _, err := r.Lookup(t.Context(), lookup.Query{Container: "unknown"}); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Lookup of an unknown container after the end = %v, want ErrStopped", err)
		}
		for range 20 { // the end must not hide what was before it
			if err := r.WaitSynced(t.Context()); err != nil {
				t.Fatalf("WaitSynced after the end = %v, want nil: the first list was committed", err)
			}
		}
		r.RequestReinspect("a") // does not block
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run after the first = nil, want an error")
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
			case want != "" && err.Error() != want:
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

// relisting starts a list of all pods and does not wait for its end.
func relisting(t *testing.T, r *kit.Pipeline) <-chan error {
	t.Helper()
	relisted := make(chan error, 1)
	go func() { relisted <- r.RelistAll(t.Context()) }()
	synctest.Wait()
	return relisted
}

// requireRelisted fails unless a relist has ended with the error want.
func requireRelisted(t *testing.T, relisted <-chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-relisted:
		if !errors.Is(err, want) {
			t.Errorf("the relist ended with %v, want %v", err, want)
		}
	default:
		t.Error("the relist has not ended")
	}
}

func requireRelisting(t *testing.T, relisted <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-relisted:
		t.Errorf("the relist has ended with %v", err)
	default:
	}
}

// A relist ends once every changed pod has been inspected, with or without success, and the events
// have been published. Before Run it is the first list.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{RelistPeriod: time.Hour})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Runtime.Set("b", "c=running")
		r.Runtime.Set("slow", "c=running")
		errInspect := errors.New("inspection failed")
		r.Runtime.SetPodFault("b", plegtest.Fail(errInspect))
		r.Runtime.SetPodFault("slow", plegtest.Delay(time.Second/2))
		first, same := relisting(t, r), relisting(t, r)
		r.Start(t)
		requireRelisting(t, first)
		time.Sleep(time.Second)
		requireRelisted(t, first, nil)
		requireRelisted(t, same, nil)
		if n := r.Runtime.Counts().Lists; n != 1 {
			t.Errorf("%d lists, want 1", n)
		}
		kit.RequireEvents(t, events, "a", "Started(c)", "slow", "Started(c)")
		if _, err := r.Cache().Get("b"); !errors.Is(err, errInspect) {
			t.Errorf("cache has %v of the pod that fails", err)
		}
		r.Runtime.SetPodFault("b", nil)
		time.Sleep(time.Second)
		requireRelisted(t, relisting(t, r), nil)
		kit.RequireEvents(t, events, "b", "Started(c)")
		errList := errors.New("list failed")
		r.Runtime.SetListFault(plegtest.Fail(errList))
		time.Sleep(time.Second)
		requireRelisted(t, relisting(t, r), errList)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := r.Runtime.Counts().Lists
		if err := r.RelistAll(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("RelistAll for nobody = %v", err)
		}
		time.Sleep(time.Minute)
		if n := r.Runtime.Counts().Lists - before; n > 0 {
			t.Errorf("%d lists for nobody", n)
		}
	})
}

// A relist waits for a change that it found while an older change of the same pod was
// in flight.
func TestRelistDuringInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{RelistPeriod: time.Hour})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Runtime.SetPodFault("a", plegtest.Delay(500*time.Millisecond))
		older := relisting(t, r)
		r.Start(t)
		time.Sleep(100 * time.Millisecond)
		r.Runtime.Set("a", "c=exited")
		newer := relisting(t, r)
		time.Sleep(500 * time.Millisecond)
		requireRelisted(t, older, nil)
		requireRelisting(t, newer)
		kit.RequireEvents(t, events, "a", "Started(c)")
		time.Sleep(500 * time.Millisecond)
		requireRelisted(t, newer, nil)
		kit.RequireEvents(t, events, "a", "Died(c)")
	})
}

// A relist ends with its context, and with the pipeline.
func TestRelistEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		r := kit.New(t, pipeline.Options{Logger: log.Logger()})
		errCaller := errors.New("the caller has no more time")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.RelistAll(ctx) }()
		synctest.Wait()
		cancel(errCaller)
		requireRelisted(t, ended, errCaller)
		if err := r.RelistAll(ctx); !errors.Is(err, errCaller) {
			t.Errorf("Relist with a context that has ended = %v, want its cause", err)
		}
		r.Runtime.SetListFault(plegtest.Hang)
		waiting := relisting(t, r)
		r.Start(t)
		synctest.Wait()
		_ = r.Stop()
		requireRelisted(t, waiting, pleg.ErrStopped)
		requireRelisted(t, relisting(t, r), pleg.ErrStopped)
		log.RequireLines(t, 0, "relist failed") // the list did not fail by itself
	})
}

// A hint ends the wait of its pod in quarantine. A hint announces a container that no list shows. The statuses in
// a hint announce the ends of other containers that the cache does not contain as ended.
func TestHintsReachTheirStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		r := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto, RelistPeriod: time.Hour, InspectTimeout: 5 * time.Second})
		events := r.Events(t, 0)
		runtime.Set("a", "c=exited new=created")
		runtime.Set("b", "d=running")
		runtime.SetPodFault("b", plegtest.Hang)
		r.Start(t)
		time.Sleep(10 * time.Second)
		kit.RequireEvents(t, events, "a", "Died(c)")
		if got := r.Look().Quarantined; len(got) != 1 || got[0].UID != "b" {
			t.Errorf("in quarantine are %+v, want pod b", got)
		}
		runtime.SetPodFault("b", nil)
		runtime.Announce("b", "d")
		time.Sleep(time.Second)
		if got := r.Look().Quarantined; len(got) != 0 {
			t.Errorf("in quarantine are %+v after an event", got)
		}
		kit.RequireEvents(t, events, "b", "Started(d)")
		short := pleg.Hint{UID: "a", Container: "short", Name: "name", PodName: "name-a", PodNamespace: "ns", State: pleg.StateRunning}
		runtime.AnnounceHint(short)
		short.State = pleg.StateExited
		short.Others = []*pleg.ContainerStatus{
			{ID: "c", State: pleg.StateExited, ExitCode: 8}, {ID: "other", State: pleg.StateExited, ExitCode: 9}, {ID: "new", State: pleg.StateExited, ExitCode: 10},
		}
		runtime.AnnounceHint(short)
		time.Sleep(time.Second)
		for id, want := range map[pleg.ContainerID]int32{"c": 0, "other": 9, "new": 10} {
			if got := r.Cache().GetRemoved(id); (got == nil) != (want == 0) || got != nil && got.ExitCode != want {
				t.Errorf("of the container %s %+v is kept, want the code %d, and nothing of one that has ended in the cache", id, got, want)
			}
		}
		time.Sleep(time.Minute)
		kit.RequireEvents(t, events, "a", "Started(short) Died(short) Removed(short)")
	})
}

// By default a list is doubted that lacks every pod after a break, or that shows a container in another pod.
func TestListsAreDoubtedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.StartBetweenLists(t)
		kit.RequireEvents(t, events, "a", "Started(c)")
		r.Runtime.SetListFault(plegtest.Fail(errors.New("list failed")))
		kit.Relist(1)
		r.Runtime.SetListFault(nil)
		r.Runtime.Remove("a")
		kit.Relist(1)
		kit.RequireEvents(t, events)
		kit.Relist(1)
		kit.RequireEvents(t, events, "a", "Died(c) Removed(c)")
		r.Runtime.Set("a", "c=running")
		kit.Relist(1)
		kit.RequireEvents(t, events, "a", "Started(c)")
		r.Runtime.Set("a", "d=running")
		r.Runtime.Set("b", "c=running")
		kit.Relist(1)
		kit.RequireEvents(t, events, "a", "Started(d)") // c stays where it was
	})
}

// While the event stream is down, lists come as often as without events.
func TestPeriodFollowsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		r := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto, RelistPeriod: 2 * time.Second, RelistPeriodWithEvents: 7 * time.Second})
		r.Start(t)
		errStream := errors.New("stream ended")
		for n, want := range []time.Duration{7 * time.Second, 2 * time.Second, 7 * time.Second} {
			runtime.SetWatchFault(nil)
			if n == 1 {
				runtime.SetWatchFault(plegtest.Fail(errStream))
				runtime.EndWatches(errStream)
			}
			time.Sleep(3 * time.Minute)
			if got := r.Look().Relist.Period; got != want {
				t.Errorf("step %d: the period is %v, want %v", n, got, want)
			}
		}
	})
}

// A pipeline that never runs leaves nothing behind once it is closed.
func TestCloseWithoutRun(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for range 2 { // the second can use the registerer
		p, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := p.Subscribe(pleg.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		p.Close()
		if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Next = %v, want ErrStopped", err)
		}
		if err := p.WaitSynced(t.Context()); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("WaitSynced = %v, want ErrStopped", err)
		}
		if err := p.Run(t.Context()); err == nil {
			t.Error("Run returns no error after Close")
		}
	}
}

// Once Run was called, its context alone ends the pipeline.
func TestCloseWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		r.Start(t)
		kit.Relist(1)
		r.Close()
		if err := r.RelistAll(t.Context()); err != nil {
			t.Errorf("RelistAll = %v after Close", err)
		}
	})
}

// BenchmarkFirstList is the time until all pods of a node are known, for each pod.
func BenchmarkFirstList(b *testing.B) {
	for _, pods := range []int{10_000, 40_000, 100_000} {
		b.Run(fmt.Sprint("pods=", pods), func(b *testing.B) {
			runtime := plegtest.New()
			list := make([]*pleg.Pod, pods)
			for n := range list {
				list[n] = plegtest.Pod(pleg.PodUID(fmt.Sprint(n)), fmt.Sprintf("c%d=running", n))
			}
			runtime.SetList(list)
			b.ReportAllocs()
			for b.Loop() {
				p, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: time.Second})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				go func() { ended <- p.Run(ctx) }()
				if err := p.WaitSynced(ctx); err != nil {
					b.Fatal(err)
				}
				cancel()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}
