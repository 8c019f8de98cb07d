//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The calls that a change may cost, without lists of all pods: with events two lists of its pod and a
// status, with polling a status. On a busy machine a list may come before a removal is complete, and is
// repeated: a tenth more is allowed there.
const (
	maxCalls          = 3.3
	maxCallsByPolling = 1.2
)

// A change costs few calls of the runtime, also in a pod of 20 containers. The time from the runtime's
// event to the event of the program depends on the machine, and is only logged.
func TestCostOfChange(t *testing.T) {
	for name, beside := range map[string]int{"small pods": 1, "pods of 20 containers": 19} {
		t.Run(name+" by polling", func(t *testing.T) { costOfChangeByPolling(t, beside) })
		if traits := lab.DefaultRuntime().Traits(); traits.Events && !traits.EventsToOne {
			t.Run(name+" with events", func(t *testing.T) { costOfChangeWithEvents(t, beside) })
		}
	}
}

// ofPods starts an instance and pods, each with this many containers that do not change. There is at
// least one such container: a pod without containers is about to end, and is listed until it ends.
func ofPods(t *testing.T, settings daemon.Settings, beside int) (context.Context, *fixture, *instance) {
	t.Helper()
	ctx, f := newFixture(t, lab.Options{})
	in := f.run(ctx, instanceOptions{name: "daemon", settings: settings, release: true})
	pods := 10
	if beside > 1 {
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

// spent returns how many changes the lists of an instance have found, also those to created, which have no
// event, how many statuses it has asked for, and how many calls it has made.
func spent(ctx context.Context, t *testing.T, in *instance) (changes, statuses, calls float64) {
	t.Helper()
	values, err := in.Metrics(ctx)
	must(t, err)
	const total = "pleg_runtime_operations_total"
	return values["pleg_changes_total"], values[total+"{container_status}"] + values[total+"{podsandbox_status}"], values[total]
}

func costOfChangeByPolling(t *testing.T, beside int) {
	ctx, f, in := ofPods(t, polling, beside)
	changes, statuses, _ := spent(ctx, t, in)
	for attempt := range uint32(8) {
		f.changeContainers(ctx, attempt)
	}
	nowChanges, nowStatuses, _ := spent(ctx, t, in)
	changes, statuses = nowChanges-changes, nowStatuses-statuses
	t.Logf("FIGURE %v changes: %.2f statuses each", changes, statuses/changes)
	if statuses > maxCallsByPolling*changes {
		t.Errorf("%v statuses for %v changes, want at most %v each", statuses, changes, maxCallsByPolling)
	}
}

// costOfChangeWithEvents changes one container of each pod, in turn.
func costOfChangeWithEvents(t *testing.T, beside int) {
	ctx, f, in := ofPods(t, rareLists, beside)
	in.criEvents = f.receiveCRIEvents(ctx)
	must(t, in.awaitStream(ctx))
	changes, _, calls := spent(ctx, t, in)
	events, began := in.countEvents(f.pods...), time.Now()
	for attempt := range uint32(8) {
		for _, p := range f.pods {
			c := f.runContainer(ctx, p, lab.ContainerSpec{Name: "main", Attempt: attempt, Program: lab.Exit(3)})
			must(t, f.lab.Trigger(ctx, c))
			must(t, removeDead(ctx, f.lab, c))
		}
	}
	took := time.Since(began)
	f.awaitAll(ctx)
	nowChanges, _, nowCalls := spent(ctx, t, in)
	changes, calls, events = nowChanges-changes, nowCalls-calls, in.countEvents(f.pods...)-events
	var behind []time.Duration
	var slow float64 // calls for starts: while one lasts, its pod is listed once a second, in two calls
	for _, e := range f.lab.History().All() {
		if e.Step == lab.Started && e.Began.After(began) {
			slow += 2 * math.Floor(e.Ended.Sub(e.Began).Seconds())
		}
		if runtime, ours := in.criEvents.announced(e.ContainerID, e.Step), in.reported(e.ContainerID, e.Step); e.Began.After(began) && !runtime.IsZero() && !ours.IsZero() {
			behind = append(behind, ours.Sub(runtime))
		}
	}
	slices.Sort(behind)
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("FIGURE %v changes with %d events in %v: %.2f calls each, and %v for starts that are slow; p50 %v, p99 %v after the runtime's event of %d; load %s", changes, events,
		took.Round(time.Millisecond), (calls-slow)/changes, slow, behind[len(behind)/2], behind[len(behind)*99/100], len(behind), strings.TrimSpace(string(load)))
	if calls > maxCalls*changes+slow {
		t.Errorf("%v calls for %v changes, want at most %v each", calls, changes, maxCalls)
	}
}
