//go:build linux

package e2e_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// fault is a row of the fault matrix. It breaks a runtime or an agent while pods
// change. In the end the state of each instance must equal the history and the runtime, and each
// step must have been reported once, in order.
type fault struct {
	name string
	// short rows are also part of "make e2e".
	short bool
	// shims: the row needs a runtime with shims.
	shims bool
	lab   lab.Options
	// pods is the number of pods before the fault.
	pods int
	// instances are those to run. If nil, [quickly].
	instances []instanceOptions
	run       func(context.Context, *fixture)
}

var (
	// quick settings detect a fault within seconds.
	quick = daemon.Settings{"relist-period": relistPeriod.String(), "relist-threshold": "5s", "list-timeout": "2s", "inspect-timeout": "2s"}
	// patient settings are for rows in which a list or a status takes long.
	patient    = daemon.Settings{"relist-period": relistPeriod.String(), "relist-threshold": "1m", "list-timeout": "30s"}
	withEvents = daemon.Settings{"events": "auto", "relist-period-with-events": "10s"}

	quickly      = []instanceOptions{{name: "polling", settings: quick}, {name: "events", settings: quick.With(withEvents).With(daemon.Settings{"relist-threshold": "30s"})}}
	longTimeouts = []instanceOptions{{name: "polling", settings: patient}, {name: "events", settings: patient.With(withEvents)}}
)

const (
	// faultTimeout bounds the time from the end of a fault until all is known.
	faultTimeout = 90 * time.Second
	// quietTime must pass without another event then. It is several relists.
	quietTime = 1500 * time.Millisecond
)

// TestFaultMatrix takes a quarter of an hour. "make e2e-faults" runs it.
func TestFaultMatrix(t *testing.T) { runFaults(t, allFaults()) }

// TestFaultsInShort runs the short rows of the fault matrix.
func TestFaultsInShort(t *testing.T) {
	t.Parallel()
	runFaults(t, slices.DeleteFunc(allFaults(), func(row fault) bool { return !row.short }))
}

// allFaults returns the rows that the default runtime can run.
func allFaults() []fault {
	all := slices.Concat(daemonFaults, shimFaults, loadFaults, agentFaults)
	return slices.DeleteFunc(all, func(row fault) bool { return row.shims && !lab.DefaultRuntime().Traits().Shims })
}

// runFaults runs several rows at the same time, because most of them wait most
// of the time. Each row uses its own lab.
func runFaults(t *testing.T, faults []fault) {
	for _, row := range faults {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.runOn(t)
		})
	}
}

func (row *fault) runOn(t *testing.T) {
	ctx, f := newFixture(t, row.lab)
	f.timeout = faultTimeout
	if row.instances == nil {
		row.instances = quickly
	}
	for _, o := range row.instances {
		f.run(ctx, o)
	}
	f.runPods(ctx, row.pods)
	f.runContainers(ctx, func(i int) lab.ContainerSpec { return mainExits(i % 200) })
	for i, in := range f.instances {
		if row.instances[i].follows && f.lab.Traits().Events {
			must(t, in.awaitStream(ctx))
		}
	}
	f.faultBegan = time.Now()
	row.run(ctx, f)
	if !f.checked {
		f.checkAfterFault(ctx)
	}
	f.changePods(ctx)
}

// sleepIntoFault waits until the fault has lasted for this long.
func (f *fixture) sleepIntoFault(ctx context.Context, d time.Duration) {
	f.t.Helper()
	must(f.t, backoff.Wait(ctx, time.Until(f.faultBegan.Add(d))))
}

// checkStates fails the test if the cache of an instance differs during the fault.
func (f *fixture) checkStates(ctx context.Context, want promises.Truth) {
	f.t.Helper()
	for _, in := range f.instances {
		known, err := in.cached(ctx)
		if lines := want.Diff(known); err != nil || len(lines) > 0 {
			f.t.Errorf("during the fault: %s: %v, %q", in.name, err, lines)
		}
	}
}

// checkAfterFault checks that every instance becomes complete, gets no more events, and is
// healthy.
func (f *fixture) checkAfterFault(ctx context.Context) {
	t := f.t
	t.Helper()
	f.checked = true
	f.awaitAll(ctx)
	must(t, backoff.Wait(ctx, quietTime))
	for _, in := range f.instances {
		if err := f.diff(ctx, in); err != nil {
			t.Errorf("%v later: %v", quietTime, err)
		}
		must(t, in.awaitHealth(ctx))
	}
}

// changePods checks that pods and their changes are reported as before the fault. It waits
// after each step, because lists would show a stop and a removal as one change.
func (f *fixture) changePods(ctx context.Context) {
	t, l := f.t, f.lab
	t.Helper()
	p, err := l.RunPod(ctx, lab.PodSpec{Name: "after"})
	must(t, err)
	c := f.runContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(9)})
	f.awaitAll(ctx)
	f.step(ctx, l.Trigger(ctx, c))
	f.step(ctx, l.StopPod(ctx, f.pods[0]))
	f.step(ctx, l.RemovePod(ctx, f.pods[0]))
}
