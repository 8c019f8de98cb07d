package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// runs returns a container that was created at a second and runs.
func runs(name string, attempt uint32, from int64) *pleg.ContainerStatus {
	return &pleg.ContainerStatus{ID: pleg.ContainerID(fmt.Sprint(name, attempt)), Name: name, Attempt: attempt, State: pleg.StateRunning, CreatedAt: time.Unix(from, 0)}
}

func ended(name string, attempt uint32, from, until int64, code int32) *pleg.ContainerStatus {
	c := runs(name, attempt, from)
	c.State, c.FinishedAt, c.ExitCode = pleg.StateExited, time.Unix(until, 0), code
	return c
}

// TestPodHasOneState: a pod is ready when kubectl says so, and green only then. All outputs read this state.
func TestPodHasOneState(t *testing.T) {
	ready, notReady := []*pleg.SandboxStatus{{ID: "s", Ready: true}}, []*pleg.SandboxStatus{{ID: "s"}}
	for name, test := range map[string]struct {
		sandboxes  []*pleg.SandboxStatus
		containers []*pleg.ContainerStatus
		finding    verdict.Cause
		want       string
		color      string
	}{
		"all run":              {ready, list(runs("a", 0, 1), runs("b", 0, 1)), "", "ready 2/2", view.Green},
		"one of two":           {ready, list(runs("a", 0, 1), ended("b", 0, 1, 5, 1)), "", "notready 1/2", view.Yellow},
		"none of two":          {ready, list(ended("a", 0, 1, 5, 1), ended("b", 0, 1, 5, 0)), "", "notready 0/2", view.Yellow},
		"one is only created":  {ready, list(runs("a", 0, 1), &pleg.ContainerStatus{Name: "b"}), "", "notready 1/2", view.Yellow},
		"restarted":            {ready, list(ended("a", 0, 1, 5, 1), runs("a", 1, 6)), "", "ready 1/1", view.Green},
		"no container yet":     {ready, nil, "", "notready 0/0", view.Yellow},
		"the sandbox has gone": {notReady, list(runs("a", 0, 1)), "", "notready 1/1", view.Yellow},
		"no sandbox":           {nil, nil, "", "unknown 0/0", view.Yellow},
		"init containers": {
			ready, list(ended("init", 2, 3, 4, 0), ended("init2", 0, 4, 5, 0), runs("a", 0, 6)), "", "ready 1/1", view.Green,
		},
		"an init container and a restart": {ready, list(ended("init", 0, 1, 2, 0), ended("a", 3, 5, 6, 1), runs("a", 4, 7)), "", "ready 1/1", view.Green},
		"an init container and a sidecar": {ready, list(runs("sidecar", 0, 1), ended("init", 0, 1, 2, 0), runs("a", 0, 3)), "", "ready 2/2", view.Green},
		"an init container failed":        {ready, list(ended("init", 0, 1, 2, 1), runs("a", 0, 3)), "", "notready 1/2", view.Yellow},
		"exited 0 beside another that was restarted": {
			ready, list(ended("a", 0, 1, 5, 0), ended("b", 0, 1, 6, 1), runs("b", 1, 7)), "", "notready 1/2", view.Yellow,
		},
		"init containers of a new sandbox": {
			list2(5), list(ended("init", 0, 1, 2, 0), ended("a", 0, 3, 4, 255), ended("init", 1, 6, 7, 0), runs("a", 1, 8)), "", "ready 1/1", view.Green,
		},
		"the last of a sandbox before": {list2(5), list(ended("a", 0, 1, 4, 255), ended("init", 1, 6, 7, 0), runs("a", 1, 8)), "", "ready 1/1", view.Green},
		"not created again":            {list2(5), list(ended("a", 0, 1, 4, 0), runs("b", 0, 6)), "", "notready 1/2", view.Yellow},
		"an ended ephemeral container": {ready, list(runs("a", 0, 1), ended("debugger", 0, 100, 101, 130)), "", "ready 1/1", view.Green},
		"an image that came late":      {ready, list(runs("a", 0, 1), ended("b", 0, 40, 41, 1)), "", "notready 1/2", view.Yellow},
		"a minute late":                {ready, list(runs("a", 0, 1), ended("b", 0, 61, 62, 1)), "", "notready 1/2", view.Yellow},
		"a crash loop":                 {ready, list(runs("a", 0, 1), ended("b", 3, 100, 101, 1)), "", "notready 1/2", view.Yellow},
		"an init container ran again":  {ready, list(ended("init", 1, 100, 101, 0), runs("a", 0, 1)), "", "ready 1/1", view.Green},
		"it may be started again":      {ready, list(ended("b", 1, 900, 950, 0), runs("a", 0, 1)), "", "notready 1/2", view.Yellow},
		"created as it ended":          {ready, list(ended("init", 0, 1, 2, 0), runs("a", 0, 2)), "", "ready 1/1", view.Green},
		"six minutes ago":              {ready, list(ended("b", 1, 600, 640, 0), runs("a", 0, 1)), "", "notready 1/2", view.Yellow},
		"more than six minutes ago":    {ready, list(ended("b", 1, 600, 639, 0), runs("a", 0, 1)), "", "ready 1/1", view.Green},
		"more, and it failed":          {ready, list(ended("b", 1, 600, 639, 1), runs("a", 0, 1)), "", "notready 1/2", view.Yellow},
		"when it was created is not known": {
			ready, list(ended("a", 0, 1, 5, 0), &pleg.ContainerStatus{Name: "b", State: pleg.StateRunning}), "", "notready 1/2", view.Yellow,
		},
		"nor in which of two sandboxes": {list2(5), list(ended("a", 0, 6, 7, 0), &pleg.ContainerStatus{Name: "b", State: pleg.StateRunning}), "", "notready 1/2", view.Yellow},
		"when it ended is not known":    {ready, list(runs("a", 0, 1), &pleg.ContainerStatus{Name: "b", State: pleg.StateExited, CreatedAt: time.Unix(100, 0)}), "", "notready 1/2", view.Yellow},
		"only when it ended is known":   {ready, list(runs("a", 0, 1), &pleg.ContainerStatus{Name: "b", State: pleg.StateExited, FinishedAt: time.Unix(100, 0)}), "", "notready 1/2", view.Yellow},
		"ended as it was created":       {ready, list(runs("a", 0, 1), ended("b", 0, 5, 5, 0)), "", "notready 1/2", view.Yellow},
		"late beside one that ended":    {ready, list(ended("a", 0, 1, 5, 1), ended("b", 0, 100, 101, 1)), "", "notready 0/2", view.Yellow},
		"hangs":                         {ready, list(runs("a", 0, 1)), verdict.HungContainer, "hung 1/1", view.Red},
		"slow":                          {ready, list(runs("a", 0, 1)), verdict.SlowContainer, "slow 1/1", view.Yellow},
		"its shim hangs":                {ready, list(runs("a", 0, 1)), verdict.HungShim, "hung 1/1", view.Red},
		"an empty cgroup":               {ready, list(runs("a", 0, 1)), verdict.EmptyCgroup, "hung 1/1", view.Red},
		"two witnesses":                 {ready, list(runs("a", 0, 1)), verdict.Contradiction, "unknown 1/1", view.Yellow},
		"of a dead node":                {ready, list(runs("a", 0, 1)), verdict.NodeSilent, "silent 1/1", view.Red},
		"cannot be asked":               {ready, list(runs("a", 0, 1)), verdict.RuntimeFails, "failed 1/1", view.Red},
	} {
		p := inspected(&pleg.PodStatus{UID: "u", Containers: test.containers, Sandboxes: test.sandboxes})
		if test.finding != "" {
			p.SetFinding(verdict.Finding{Cause: test.finding})
		}
		if got := fmt.Sprintf("%s %d/%d", p.State, p.Running, p.Total); got != test.want || view.PodColor(&p) != test.color || p.Stale != (test.finding != "") {
			t.Errorf("%s: %s in color %s, stale %v, want %s in %s", name, got, view.PodColor(&p), p.Stale, test.want, test.color)
		}
		soon, _, _ := strings.Cut(test.want, " ")
		switch {
		case test.finding == "":
			soon = view.Failed
		case soon == view.Hung:
			soon = view.Slow
		}
		if p.SetFinding(verdict.Finding{Cause: test.finding, Severity: verdict.Warning}); p.State != soon {
			t.Errorf("%s: with a trouble that may be over soon it is %s, want %s", name, p.State, soon)
		}
		if p.SetFinding(verdict.Finding{Cause: test.finding, Severity: verdict.Problem}); view.PodColor(&p) != view.Red {
			t.Errorf("%s: a problem has the color %s", name, view.PodColor(&p))
		}
	}
}

// list2 returns two sandboxes, the second of which was created at a second.
func list2(at int64) []*pleg.SandboxStatus {
	return []*pleg.SandboxStatus{{ID: "s1", Ready: true, Attempt: 1, CreatedAt: time.Unix(at, 0)}, {ID: "s0", CreatedAt: time.Unix(0, 0)}}
}

func list(all ...*pleg.ContainerStatus) []*pleg.ContainerStatus { return all }
