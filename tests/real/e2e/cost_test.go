//go:build linux

package e2e_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// maxCalls is how many calls a change may cost with events on: two lists of its pod and a status.
const maxCalls = 3

// With events on, a change costs at most three calls of the runtime, also in a pod of 20 containers. How
// long after the runtime's event its own arrives depends on the machine, and is only logged.
func TestCostOfChangeWithEvents(t *testing.T) {
	if !lab.DefaultRuntime().Traits().Events || lab.DefaultRuntime().Traits().EventsToOne {
		t.Skip("needs a runtime that tells each event to two clients")
	}
	for name, beside := range map[string]int{"small pods": 0, "pods of 20 containers": 19} {
		t.Run(name, func(t *testing.T) { costOfChange(t, beside) })
	}
}

// costOfChange changes one container of each pod, in turn; beside is the number of its others.
func costOfChange(t *testing.T, beside int) {
	ctx, f := newFixture(t, lab.Options{})
	in := f.run(ctx, instanceOptions{name: "events", settings: rareLists, release: true})
	in.criEvents = f.receiveCRIEvents(ctx)
	pods := 10
	if beside > 0 {
		pods = 3
	}
	f.runPods(ctx, pods)
	for n := range beside {
		f.runContainers(ctx, func(int) lab.ContainerSpec {
			return lab.ContainerSpec{Name: fmt.Sprint("beside-", n), Program: lab.Pause()}
		})
	}
	must(t, in.awaitStream(ctx))
	calls, events, began := in.metric(ctx, t, "pleg_runtime_operations_total"), in.countEvents(f.pods...), time.Now()
	for attempt := range uint32(8) {
		for _, p := range f.pods {
			c := f.runContainer(ctx, p, lab.ContainerSpec{Name: "main", Attempt: attempt, Program: lab.Exit(3)})
			must(t, f.lab.Trigger(ctx, c))
			must(t, removeDead(ctx, f.lab, c))
		}
	}
	took := time.Since(began)
	f.awaitAll(ctx)
	calls, events = in.metric(ctx, t, "pleg_runtime_operations_total")-calls, in.countEvents(f.pods...)-events
	perChange := calls / float64(events)
	var behind []time.Duration
	for _, e := range f.lab.History().All() {
		if runtime, ours := in.criEvents.announced(e.ContainerID, e.Step), in.reported(e.ContainerID, e.Step); e.Began.After(began) && !runtime.IsZero() && !ours.IsZero() {
			behind = append(behind, ours.Sub(runtime))
		}
	}
	slices.Sort(behind)
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("FIGURE %d changes in %v: %.2f calls each; p50 %v, p99 %v after the runtime's event of %d; load %s", events, took.Round(time.Millisecond),
		perChange, behind[len(behind)/2], behind[len(behind)*99/100], len(behind), strings.TrimSpace(string(load)))
	if perChange > maxCalls {
		t.Errorf("%.2f calls for each change, want at most %d", perChange, maxCalls)
	}
}
