package invariants_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var errShim = errors.New("no shim")

// A request ends an inspection that hangs, with either list; an event of the runtime does not.
func TestRequestEndsAHungInspection(t *testing.T) {
	for name, row := range map[string]struct {
		basic bool
		ask   func(*kit.Pipeline)
		ends  bool
	}{
		"RequestRelist":                    {false, func(p *kit.Pipeline) { p.RequestRelist("a") }, true},
		"RequestRelist by a list of all":   {true, func(p *kit.Pipeline) { p.RequestRelist("a") }, true},
		"RequestReinspect":                 {false, func(p *kit.Pipeline) { p.RequestReinspect("a") }, true},
		"an event":                         {false, func(p *kit.Pipeline) { p.Runtime.Announce("a", "c") }, false},
		"RequestRelist of another pod":     {false, func(p *kit.Pipeline) { p.RequestRelist("b") }, false},
		"nothing, the pod is listed again": {true, func(*kit.Pipeline) {}, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			runtime := plegtest.New()
			o := pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto}
			if row.basic {
				o = pipeline.Options{Runtime: runtime.Basic()}
			}
			p := kit.New(t, o)
			p.Runtime = runtime
			runtime.Set("a", "c=running")
			runtime.Set("b", "d=running")
			runtime.SetPodFault("a", plegtest.Hang)
			p.StartBetweenLists(t)
			time.Sleep(5 * time.Second)
			runtime.SetPodFault("a", nil)
			row.ask(p)
			time.Sleep(3 * time.Second)
			if _, err := p.Cache().Get("a"); (err == nil) != row.ends {
				t.Errorf("3 s later: %v, want that the inspection has ended: %v", err, row.ends)
			}
		})
	}
}

// Within a minute after a hang no finding says that the runtime is slow: the inspections that waited
// for it took that long.
func TestVerdictAfterAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		kit.Fill(p.Runtime, 8, "c=running")
		p.StartBetweenLists(t)
		thaw := make(chan struct{})
		p.Runtime.SetInspectFault(func(context.Context) error {
			<-thaw
			time.Sleep(700 * time.Millisecond) // the runtime works on the inspections that waited
			return nil
		})
		for _, uid := range kit.UIDs(8) {
			p.Runtime.Set(uid, "c=exited")
		}
		kit.Relist(1) // the inspections begin
		p.Runtime.SetListFault(plegtest.Block(thaw))
		time.Sleep(20 * time.Second)
		if v := verdict.Of(p.Look()); v.Severity != verdict.Problem {
			t.Errorf("during the hang: %s", v.Text)
		}
		close(thaw)
		p.Runtime.SetInspectFault(nil)
		var v verdict.Verdict
		for range 40 { // as often as an open page asks
			time.Sleep(100 * time.Millisecond)
			v = verdict.Of(p.Look())
		}
		if v.Severity != verdict.OK {
			t.Errorf("4 s after the hang: %s", v.Text)
		}
	})
}

// If a list shows the labels of a pod late, they apply from the next event on, and to a replay.
func TestLabelsThatBecomeKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		web := pleg.SubscribeOptions{Filter: pleg.Filter{Selector: "app=web"}}
		from, err := p.Subscribe(web)
		kit.Must(t, err)
		pod := func(words string, labels map[string]string) {
			listed := plegtest.Pod("a", words)
			listed.Labels = labels
			p.Runtime.SetPod(listed)
			kit.Relist(1)
		}
		p.StartBetweenLists(t)
		pod("c=running", nil)
		pod("c=running d=running", map[string]string{"app": "web"})
		pod("c=exited d=running", nil) // an answer without labels takes none away
		if got := plegtest.Words(kit.Read(t, from)...); got != "Started(d) Died(c)" {
			t.Errorf("with the labels: %q, want what happened since they are known", got)
		}
		web.Replay = true
		replay, err := p.Subscribe(web)
		kit.Must(t, err)
		if got := plegtest.Words(kit.Read(t, replay)...); got != "Started(d) Died(c) Synced()" {
			t.Errorf("a replay with the labels: %q", got)
		}
	})
}

// With a threshold near the period a node is unhealthy before a list counts as hung: the verdict says so.
func TestVerdictOfAShortThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{RelistThreshold: 3 * time.Second / 2})
		p.Runtime.Set("a", "c=running")
		p.StartBetweenLists(t)
		p.Runtime.SetListFault(plegtest.Hang)
		time.Sleep(3 * time.Second / 2)
		s := p.Look()
		if v := verdict.Of(s); s.Healthy || v.Severity != verdict.Problem || !strings.Contains(v.Text, "the node is not healthy") {
			t.Errorf("healthy %v, the verdict is %q, want that the node is not healthy", s.Healthy, v.Text)
		}
	})
}

// An empty status means that the pod is gone. A pod whose inspections fail or hang is delivered with the last
// good one, replayed or from the log.
func TestEmptyStatusMeansGone(t *testing.T) {
	for name, fault := range map[string]plegtest.Fault{"fails": plegtest.Fail(errShim), "hangs": plegtest.Hang, "fails late": func(context.Context) error {
		time.Sleep(2 * time.Second)
		return errShim
	}} {
		kit.Bubble(t, name, func(t *testing.T) {
			p := kit.New(t, pipeline.Options{InspectTimeout: 5 * time.Second})
			p.Runtime.Set("a", "c=running")
			p.StartBetweenLists(t)
			p.Runtime.SetPodFault("a", fault)
			for round := range 10 {
				p.Runtime.Set("a", []string{"c=running d=running", "c=running"}[round%2])
				p.RequestReinspect("a")
				kit.Relist(3)
				for _, o := range []pleg.SubscribeOptions{{Replay: true, Statuses: true}, {Since: time.Unix(1, 0), Statuses: true}} {
					sub, err := p.Subscribe(o)
					kit.Must(t, err)
					for _, ev := range kit.Read(t, sub) {
						if ev.PodUID == "" && ev.Status != nil {
							t.Errorf("%s comes with %+v, and is about no pod", ev.Type, ev.Status)
						}
						if ev.PodUID == "a" && (ev.Status == nil || ev.Status.Container("c") == nil) {
							t.Fatalf("round %d: %s comes with %+v, and the pod runs", round, ev.Type, ev.Status)
						}
					}
					sub.Close()
				}
			}
			p.Runtime.Remove("a")
			sub, err := p.Subscribe(pleg.SubscribeOptions{Statuses: true})
			kit.Must(t, err)
			kit.Relist(2)
			if got := kit.Read(t, sub); len(got) == 0 || got[0].Status == nil || len(got[0].Status.Containers) > 0 {
				t.Errorf("%+v, want events of the removed pod with an empty status", got)
			}
		})
	}
}

// A pod whose last inspection failed and whose next one is overdue is reported once, not twice. The process
// of the runtime is named then, although lists succeed.
func TestFailedThenOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		p := kit.New(t, pipeline.Options{Runtime: processReporter{runtime.Basic(), nil}})
		runtime.Set("a", "c=running")
		runtime.Set("b", "d=running")
		p.StartBetweenLists(t)
		runtime.SetPodFault("a", plegtest.Fail(errShim))
		runtime.Set("a", "c=exited")
		kit.Relist(2)
		if s := p.Look(); len(s.Failed) != 1 || len(s.Overdue) > 0 || nodestate.Of(s.Details).Process != nil {
			t.Fatalf("failed %+v, overdue %+v, process %+v, want one that failed", s.Failed, s.Overdue, nodestate.Of(s.Details).Process)
		}
		runtime.SetPodFault("a", plegtest.Hang)
		kit.Relist(4)
		s := p.Look()
		if len(s.Failed) > 0 || len(s.Overdue) != 1 || s.Relist.Failures > 0 || nodestate.Of(s.Details).Process == nil || nodestate.Of(s.Details).Process.PID != 41 {
			t.Errorf("failed %+v, overdue %+v, process %+v, want one that is overdue, and the process", s.Failed, s.Overdue, nodestate.Of(s.Details).Process)
		}
		if v := verdict.Of(s); len(v.Findings) != 1 || v.Findings[0].PodUID != "a" {
			t.Errorf("the verdict is %+v, want one finding", v)
		}
	})
}

// processReporter is a runtime that reports its process, and perhaps a fallback.
type processReporter struct {
	pleg.Runtime
	degraded error
}

func (r processReporter) Report() pleg.Report {
	return pleg.Report{Degraded: r.degraded, Details: nodestate.State{Process: &nodestate.Process{PID: 41, Name: "containerd", State: "T"}}}
}

// A fallback is not reported while the node is unhealthy for another reason. The process of the runtime is
// named between two lists that fail, too.
func TestNotDegradedWhileUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		p := kit.New(t, pipeline.Options{Runtime: processReporter{runtime.Basic(), errShim}, RelistThreshold: 10 * time.Second})
		runtime.Set("a", "c=running")
		p.StartBetweenLists(t)
		if s := p.Look(); !errors.Is(s.Degraded, errShim) {
			t.Errorf("a healthy node is degraded by %v, want %v", s.Degraded, errShim)
		}
		runtime.SetListFault(plegtest.Fail(errShim))
		kit.Relist(1)
		if s := p.Look(); s.Relist.Failures != 1 || !s.Relist.Started.IsZero() || nodestate.Of(s.Details).Process == nil {
			t.Errorf("after a list that failed: %+v, want the process", s)
		}
		runtime.SetListFault(plegtest.Hang)
		time.Sleep(15 * time.Second)
		if s := p.Look(); s.Healthy || s.Degraded != nil {
			t.Errorf("healthy %v, degraded by %v, want neither", s.Healthy, s.Degraded)
		}
	})
}

// A lookup finds listed containers from the first failed inspection on, not only when the pod has
// waited for a second.
func TestLookupInTheFirstSecondOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.StartBetweenLists(t)
		p.Runtime.SetPodFault("a", plegtest.Fail(errShim))
		p.Runtime.Set("a", "c=running")
		kit.Relist(1)
		if c, err := p.Lookup(t.Context(), lookup.Query{Container: "c"}); err != nil || c.PodUID != "a" {
			t.Errorf("in the first second Lookup = %+v, %v", c, err)
		}
	})
}

// A container that only a list shows is found once its inspection has taken a second, neither before nor
// with the next list.
func TestLookupAfterASecondOfAnInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{RelistPeriod: 10 * time.Second})
		p.Start(t)
		synctest.Wait()
		p.Runtime.SetPodFault("a", plegtest.Hang)
		p.Runtime.Set("a", "c=running")
		time.Sleep(10 * time.Second) // the list begins
		for _, step := range []struct {
			wait  time.Duration
			known bool
		}{{time.Second - 1, false}, {1, true}} {
			time.Sleep(step.wait)
			if c, err := p.Lookup(t.Context(), lookup.Query{Container: "c"}); (err == nil && c.PodUID == "a") != step.known {
				t.Errorf("Lookup = %+v, %v, want it found: %v", c, err, step.known)
			}
		}
	})
}

// A container that was removed too long ago does not make the first digits of another ambiguous.
func TestPrefixOfARemovedContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, stays := "abc1"+strings.Repeat("0", 60), "abc2"+strings.Repeat("0", 60)
		p := kit.New(t, pipeline.Options{})
		p.Runtime.Set("gone", gone+"=running")
		p.Runtime.Set("stays", stays+"=running")
		p.StartBetweenLists(t)
		p.Runtime.Remove("gone")
		kit.Relist(1)
		find := func() (lookup.Container, error) {
			return p.Lookup(t.Context(), lookup.Query{Container: "abc"})
		}
		if c, err := find(); !errors.Is(err, pleg.ErrInvalidOption) {
			t.Errorf("of two: %+v, %v", c, err)
		}
		time.Sleep(lookup.KeepRemoved)
		if c, err := find(); err != nil || c.ID != pleg.ContainerID(stays) {
			t.Errorf("after %v: %+v, %v, want the one that exists", lookup.KeepRemoved, c, err)
		}
	})
}

// If a list of the pod shows a change undone before its inspection began, the change is settled at once,
// not with the next list of all pods. While the inspection runs, such a list settles nothing.
func TestPendingEndsWithTheListThatSettlesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		p := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto, Inspectors: 1})
		p.Runtime = runtime
		runtime.Set("a", "c=running")
		runtime.Set("b", "d=running")
		p.StartBetweenLists(t)
		pending := func(step string, want int) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if got := p.Cache().Pending(); len(got) != want {
				t.Errorf("%s: pending are %+v, want %d", step, got, want)
			}
		}
		release := make(chan struct{})
		runtime.SetInspectFault(plegtest.Block(release))
		runtime.Set("a", "c=exited")
		runtime.Set("b", "d=exited")
		for len(p.Cache().Pending()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		pending("after a list of all", 2) // one is in its inspection, the other waits
		runtime.Set("a", "c=running")
		runtime.Set("b", "d=running")
		p.RequestRelist("a")
		p.RequestRelist("b")
		pending("after lists of each", 1)
		close(release)
		pending("after the inspections", 0)
	})
}
