package invariants_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A status that contradicts its list is committed, asked for again, corrected, and named while it
// lasts.
func TestContradictions(t *testing.T) {
	for name, tc := range map[string]struct {
		before, now string // what lists show
		says        string // the state in the status meanwhile
		events      string // with the corrections
		named       string
	}{
		"a dead container runs in its status":       {"a=running /s=running", "a=exited /s=running", "a=running /s=running", "Died(a) Corrected(a)", "a exited running"},
		"a running one has not started":             {"/s=running", "a=running /s=running", "a=created /s=running", "Started(a) Corrected(a)", "a running created"},
		"the status lacks a container":              {"/s=running", "a=running /s=running", "/s=running", "Started(a) Corrected(a)", "a running missing"},
		"the status lacks one that has not started": {"/s=running", "a=created /s=running", "/s=running", "", "a created missing"},
		"the status lacks the sandbox":              {"", "a=running /s=running", "a=running", "Started(a) Started(/s) NetworkSetupCompleted(/s)", "s running missing"},
		"a ready sandbox is not ready in it":        {"", "a=running /s=running", "a=running /s=exited", "Started(a) Started(/s) NetworkSetupCompleted(/s)", "s running exited"},
		"it knows an end that no list ever shows":   {"a=running /s=running", "a=running b=running /s=running", "a=running b=exited /s=running", "Started(b) Corrected(b)", "b running exited"},
		"a list that does not know the state is no": {"a=running /s=running", "a=unknown b=running /s=running", "a=exited b=running /s=running", "Started(b)", ""},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			p := kit.New(t, pipeline.Options{})
			if tc.before != "" {
				p.Runtime.Set("p", tc.before)
			}
			p.StartBetweenLists(t)
			all := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerCorrected, pleg.NetworkSetupCompleted}
			sub := p.Follow(t, pleg.SubscribeOptions{Filter: pleg.Filter{Types: all}}, nil)
			before := p.Runtime.Counts().Inspections["p"]
			p.Runtime.Set("p", tc.now)
			says := plegtest.Pod("p", tc.says)
			if says.Running() && tc.before != "" {
				p.Runtime.SetStatus("p", plegtest.Status(says, plegtest.Address))
			} else {
				p.Runtime.SetStatus("p", plegtest.Status(says))
			}
			kit.Relist(5)
			var named []string
			for _, c := range p.Look().Contradictions {
				state := c.Status.String()
				if c.Missing {
					state = "missing"
				}
				named = append(named, fmt.Sprint(c.Container, " ", c.Listed, " ", state))
				if age := time.Since(c.Since).Round(time.Second); age != 5*time.Second || c.Name != "name-p" || c.Sandbox != (c.Container == "s") {
					t.Errorf("%+v is %v old, want 5 s", c, age)
				}
			}
			if got := strings.Join(named, ", "); got != tc.named {
				t.Errorf("named %q, want %q", got, tc.named)
			}
			kit.Relist(55)
			// The waits are 1, 2, 4, 8, 16 and 32 s.
			if n, most := p.Runtime.Counts().Inspections["p"]-before, 7; n > most || (n > 1) != (tc.named != "") {
				t.Errorf("%d inspections in a minute, want at most %d", n, most)
			}
			p.Runtime.SetStatus("p", nil)
			kit.Relist(64)
			if left := p.Look().Contradictions; len(left) > 0 {
				t.Errorf("named after they agree: %+v", left)
			}
			if got := plegtest.Words(sub.Events()...); got != tc.events {
				t.Errorf("events %q, want %q", got, tc.events)
			}
			for _, ev := range sub.Events() {
				if ev.Type == pleg.ContainerCorrected && strings.Contains(tc.now, "a=exited") != (ev.ExitCode != nil) {
					t.Errorf("%+v does not say what the status knows", ev)
				}
			}
			end := p.Runtime.Counts().Inspections["p"]
			kit.Relist(600)
			if n := p.Runtime.Counts().Inspections["p"] - end; n > 0 {
				t.Errorf("%d inspections after they agree, want none", n)
			}
		})
	}
}

// Of two pods that differ, the first one is named, with its age.
func TestContradictionsOfTwoPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.StartBetweenLists(t)
		began := time.Now()
		for _, uid := range []pleg.PodUID{"late", "b", "a"} {
			p.Runtime.Set(uid, "c-"+string(uid)+"=running /s-"+string(uid)+"=running")
			p.Runtime.SetStatus(uid, plegtest.Status(plegtest.Pod(uid, "/s-"+string(uid)+"=running"), plegtest.Address))
			kit.Relist(20)
		}
		f := verdict.Of(p.Look()).Findings
		if len(f) != 1 || f[0].Subject != "ns/name-late and 2 more pods" || f[0].What != "differ in lists and statuses" || f[0].Since.Sub(began) > 2*time.Second {
			t.Errorf("findings %+v, want one that begins with the pod that differs since %v", f, began)
		}
	})
}

// Two containers of a pod are one pod that differs, until it is gone. Each has its own time.
func TestContradictionsOfOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		p.StartBetweenLists(t)
		p.Runtime.Set("p", "a=running b=running /s=running")
		p.Runtime.SetStatus("p", plegtest.Status(plegtest.Pod("p", "/s=running"), plegtest.Address))
		kit.Relist(20)
		if f := verdict.Of(p.Look()).Findings; len(f) != 1 || f[0].Subject != "ns/name-p" || f[0].Pods != 1 {
			t.Errorf("findings %+v, want one of one pod", f)
		}
		p.Runtime.Set("p", "a=running b=running late=running /s=running")
		kit.Relist(80)
		if all := p.Look().Contradictions; len(all) != 3 || all[2].Container != "late" || all[2].Since.Sub(all[0].Since) != 20*time.Second {
			t.Errorf("contradictions %+v, want the late one 20 s after the others", all)
		}
		p.Runtime.Remove("p")
		kit.Relist(1)
		if left := p.Look().Contradictions; len(left) > 0 {
			t.Errorf("contradictions of a pod that is gone: %+v", left)
		}
	})
}
