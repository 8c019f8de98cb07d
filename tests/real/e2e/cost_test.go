//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// How many calls a change may cost, the lists of all pods apart: with events two lists of its pod and a
// status, by polling a status.
const (
	maxCalls          = 3
	maxCallsByPolling = 1.2
)

// A change costs few calls of the runtime, also in a pod of 20 containers. How long after the runtime's
// event its own arrives depends on the machine, and is only logged.
func TestCostOfChange(t *testing.T) {
	for name, beside := range map[string]int{"small pods": 0, "pods of 20 containers": 19} {
		t.Run(name+" by polling", func(t *testing.T) { costOfChangeByPolling(t, beside) })
		if traits := lab.DefaultRuntime().Traits(); traits.Events && !traits.EventsToOne {
			t.Run(name+" with events", func(t *testing.T) { costOfChangeWithEvents(t, beside) })
		}
	}
}

// ofPods starts an instance and pods, each with so many containers that do not change.
func ofPods(t *testing.T, settings daemon.Settings, beside int) (context.Context, *fixture, *instance) {
	t.Helper()
	ctx, f := newFixture(t, lab.Options{})
	in := f.run(ctx, instanceOptions{name: "daemon", settings: settings, release: true})
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
	return ctx, f, in
}

func costOfChangeByPolling(t *testing.T, beside int) {
	ctx, f, in := ofPods(t, polling, beside)
	statuses := func() float64 {
		const calls = "pleg_runtime_operations_total"
		return in.metric(ctx, t, calls+"{container_status}") + in.metric(ctx, t, calls+"{podsandbox_status}")
	}
	calls, events := statuses(), in.countEvents(f.pods...)
	for attempt := range uint32(4) {
		f.changeContainers(ctx, attempt)
	}
	calls, events = statuses()-calls, in.countEvents(f.pods...)-events
	t.Logf("FIGURE %d changes: %.2f statuses each", events, calls/float64(events))
	if calls > maxCallsByPolling*float64(events) {
		t.Errorf("%v statuses for %d changes, want at most %v each", calls, events, maxCallsByPolling)
	}
}

// costOfChangeWithEvents changes one container of each pod, in turn.
func costOfChangeWithEvents(t *testing.T, beside int) {
	ctx, f, in := ofPods(t, rareLists, beside)
	in.criEvents = f.receiveCRIEvents(ctx)
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
