package invariants_test

import (
	"errors"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each rule about lists and inspections can fire: a runtime that breaks it gets the verdict. The tests of
// package verdict cover the texts.
func TestVerdictsOfRuntimes(t *testing.T) {
	age := regexp.MustCompile(` since 00:00 \([^)]*\)`)
	fails := plegtest.Fail(errors.New("no shim"))
	for name, tc := range map[string]struct {
		pods   int
		change int              // the number of them that change
		faults []plegtest.Fault // of the first pods
		list   plegtest.Fault
		period time.Duration
		after  time.Duration
		want   string
	}{
		"well":                              {3, 3, nil, nil, 0, 5 * time.Second, "OK: the node is healthy, its 3 pods answer"},
		"an inspection is slow":             {3, 1, []plegtest.Fault{plegtest.Delay(time.Minute)}, nil, 0, 5 * time.Second, "WARNING: ns/name-p0 is slow; the other 2 pods answer"},
		"an inspection hangs":               {3, 3, []plegtest.Fault{plegtest.Hang}, nil, 0, 20 * time.Second, "PROBLEM: ns/name-p0 hangs; the other 2 pods answer"},
		"an inspection hangs again":         {3, 3, []plegtest.Fault{plegtest.Hang}, nil, 0, 10 * time.Minute, "PROBLEM: ns/name-p0 hangs; the other 2 pods answer"},
		"three pods hang":                   {10, 10, []plegtest.Fault{plegtest.Hang, plegtest.Hang, plegtest.Hang}, nil, 0, 20 * time.Second, "PROBLEM: the runtime does not answer inspections: 3 of 10 pods wait, the longest is ns/name-p0"},
		"half of the pods hang":             {4, 4, []plegtest.Fault{plegtest.Hang, plegtest.Hang}, nil, 0, 20 * time.Second, "PROBLEM: ns/name-p0 and 1 more pod hang; the other 2 pods answer"},
		"the only two pods hang":            {2, 2, []plegtest.Fault{plegtest.Hang, plegtest.Hang}, nil, 0, 20 * time.Second, "PROBLEM: ns/name-p0 and 1 more pod hang"},
		"an inspection fails":               {3, 3, []plegtest.Fault{fails}, nil, 0, 20 * time.Second, "PROBLEM: ns/name-p0 cannot be inspected: no shim"},
		"an inspection has just failed":     {3, 3, []plegtest.Fault{fails}, nil, 0, time.Second, "OK: the node is healthy, its 3 pods answer"},
		"one pod hangs, another is slow":    {10, 10, []plegtest.Fault{plegtest.Hang, plegtest.Delay(time.Minute)}, nil, 0, 20 * time.Second, "PROBLEM: ns/name-p0 and 1 more pod hang; the other 8 pods answer"},
		"no inspection has ended":           {1, 1, []plegtest.Fault{plegtest.Delay(time.Minute)}, nil, 0, time.Second, "OK: waiting for the statuses of all pods"},
		"inspections are slow":              {3, 3, []plegtest.Fault{plegtest.Delay(3300 * time.Millisecond), plegtest.Delay(3300 * time.Millisecond), plegtest.Delay(3300 * time.Millisecond)}, nil, 0, 10 * time.Second, "WARNING: the runtime is slow: half of the inspections take 3.3s or longer"},
		"lists fail, with a long period":    {3, 0, nil, fails, 30 * time.Second, 50 * time.Second, "PROBLEM: the list of all pods fails: list pods: no shim"},
		"lists fail":                        {3, 0, nil, fails, 0, 20 * time.Second, "PROBLEM: the list of all pods fails: list pods: no shim"},
		"lists hang":                        {3, 0, nil, plegtest.Hang, 0, 20 * time.Second, "PROBLEM: the runtime hangs"},
		"a list and a pod hang":             {3, 3, []plegtest.Fault{plegtest.Hang}, plegtest.Hang, 0, 20 * time.Second, "PROBLEM: the runtime hangs"},
		"lists are slow":                    {3, 0, nil, plegtest.Delay(3 * time.Second), 0, 20 * time.Second, "WARNING: the runtime is slow: the list of all pods takes up to 3.0s"},
		"lists have failed until unhealthy": {3, 0, nil, fails, 0, 5 * time.Minute, "PROBLEM: the list of all pods fails: list pods: no shim"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			p := kit.New(t, pipeline.Options{RelistPeriod: tc.period})
			kit.Fill(p.Runtime, tc.pods, "c=running")
			p.StartBetweenLists(t)
			for n, fault := range tc.faults {
				p.Runtime.SetPodFault(kit.UIDs(tc.pods)[n], fault)
			}
			for _, uid := range kit.UIDs(tc.pods)[:tc.change] {
				p.Runtime.Set(uid, "c=exited")
			}
			if tc.change > 0 && tc.list != nil {
				kit.Relist(2)
			}
			p.Runtime.SetListFault(tc.list)
			time.Sleep(tc.after)
			synctest.Wait()
			if got := age.ReplaceAllString(verdict.Of(p.Look()).Text, ""); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// Each trouble of a runtime is logged once when it begins, with the time of its first attempt, and once when it
// has ended; of pods that hang one after the other, each.
func TestTroublesOfRuntimesAreLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		list   plegtest.Fault
		pods   int           // the number of pods that hang, ten seconds apart
		begins time.Duration // after the first attempt
		want   []string      // a line each
	}{
		"a list hangs": {plegtest.Hang, 0, 5 * time.Second, []string{`cause="runtime hangs" since=2000-01-01T00:00:01.000Z what="the runtime hangs since 00:00`}},
		"the runtime is stopped": {
			plegtest.Fail(fmt.Errorf("dial: %w", pleg.ErrUnavailable)), 0, time.Second,
			[]string{`cause="runtime stopped" since=2000-01-01T00:00:01.000Z what="the runtime is stopped since 00:00`},
		},
		"an inspection hangs": {nil, 1, 3 * time.Second, []string{`cause="hung container" since=2000-01-01T00:00:01.000Z what="ns/name-p0 hangs since 00:00`}},
		"two inspections hang": {nil, 2, 3 * time.Second, []string{
			`cause="hung container" since=2000-01-01T00:00:01.000Z what="ns/name-p0 hangs since 00:00`,
			`cause="hung container" since=2000-01-01T00:00:11.000Z what="ns/name-p1 hangs since 00:00`,
		}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var logged kit.Log
			p := kit.New(t, pipeline.Options{Logger: logged.Logger()})
			kit.Fill(p.Runtime, 9, "c=running")
			p.StartBetweenLists(t)
			first := time.Now().Add(pipeline.DefaultRelistPeriod / 2)
			lines := func(at time.Duration, begun, ended int) {
				t.Helper()
				time.Sleep(time.Until(first.Add(at)))
				logged.RequireLines(t, begun, "trouble begins")
				logged.RequireLines(t, ended, "trouble ended")
			}
			p.Runtime.SetListFault(tc.list)
			for n := range tc.pods {
				time.Sleep(time.Until(first.Add(time.Duration(n)*10*time.Second - pipeline.DefaultRelistPeriod/2)))
				p.Runtime.SetPodFault(kit.UIDs(9)[n], plegtest.Hang)
				p.Runtime.Set(kit.UIDs(9)[n], "c=exited")
				p.Runtime.Set(kit.UIDs(9)[8-n], "c=exited") // overtakes it
				lines(time.Duration(n)*10*time.Second+tc.begins-time.Second-1, n, 0)
			}
			if tc.pods == 0 {
				lines(tc.begins-time.Second-1, 0, 0)
			}
			lines(10*time.Minute, len(tc.want), 0)
			p.Runtime.SetListFault(nil)
			for n := range tc.pods {
				p.Runtime.SetPodFault(kit.UIDs(9)[n], nil)
				p.Runtime.Set(kit.UIDs(9)[8-n], "c=running") // overtakes the retry, so that the request ends it
				kit.Relist(2)
				p.RequestRelist(kit.UIDs(9)[n])
				lines(10*time.Minute+time.Duration(n+1)*10*time.Second, len(tc.want), n+1)
			}
			lines(15*time.Minute, len(tc.want), len(tc.want))
			for _, want := range tc.want {
				logged.RequireLines(t, 1, `"trouble begins" severity=problem `+want)
			}
		})
	}
}

// Of many pods that hang for one reason, ten are logged.
func TestFewOfManyHungPodsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged kit.Log
		p := kit.New(t, pipeline.Options{Logger: logged.Logger()})
		kit.Fill(p.Runtime, 40, "c=running")
		p.StartBetweenLists(t)
		for _, uid := range kit.UIDs(12) {
			p.Runtime.SetPodFault(uid, plegtest.Hang)
			p.Runtime.Set(uid, "c=exited")
		}
		kit.Relist(2)
		p.Runtime.Set("p39", "c=exited") // overtakes them
		kit.Relist(60)
		if v := verdict.Of(p.Look()); len(v.Findings) != 1 || v.Findings[0].Pods != 12 {
			t.Errorf("the verdict is %q, want 12 pods that hang", v.Text)
		}
		logged.RequireLines(t, 10, "trouble begins")
	})
}
