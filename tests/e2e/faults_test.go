//go:build linux

package e2e_test

import (
	"context"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// fault is a row of the matrix: it harms a runtime or an agent while the ledger
// notes what really happens to the pods. Of every row is demanded that in the
// end each observer knows what the ledger and the runtime know, and that the
// events of each container are the ledger's, in order, none lost and none twice.
type fault struct {
	name string
	// short is part of "make e2e" too.
	short bool
	lab   lab.Options
	// pods is the number there is before the fault.
	pods int
	// modes are the observers in this process. If empty, [bothModes]; the rows of
	// the agent have none and start their own.
	modes map[string]pipeline.Options
	agent bool
	run   func(context.Context, *trial)
}

// bothModes notice a fault within seconds, so that the health can be looked at.
// With events lists are too rare to stand in for them.
var bothModes = map[string]pipeline.Options{
	"polling": {
		RelistPeriod: relistPeriod, RelistThreshold: 5 * time.Second, ListTimeout: 2 * time.Second, InspectTimeout: 2 * time.Second,
	},
	"events": {
		RelistPeriod: relistPeriod, RelistThreshold: 5 * time.Second, ListTimeout: 2 * time.Second, InspectTimeout: 2 * time.Second,
		Events: pipeline.EventsAuto, RelistPeriodWithEvents: 10 * time.Second, RelistThresholdWithEvents: 20 * time.Second,
	},
}

// patient leaves time for lists that take long.
var patient = map[string]pipeline.Options{
	"polling": {RelistPeriod: relistPeriod, RelistThreshold: time.Minute, ListTimeout: 30 * time.Second},
	"events": {
		RelistPeriod: relistPeriod, RelistThreshold: time.Minute, ListTimeout: 30 * time.Second,
		Events: pipeline.EventsAuto, RelistPeriodWithEvents: 10 * time.Second, RelistThresholdWithEvents: time.Minute,
	},
}

// TestFaultMatrix takes a quarter of an hour: "make e2e-faults" runs it, and
// "make e2e" leaves it out.
func TestFaultMatrix(t *testing.T) {
	runFaults(t, slices.Concat(daemonFaults, shimFaults, loadFaults, agentFaults))
}

// TestFaultsInShort is the part of the matrix that is quick.
func TestFaultsInShort(t *testing.T) {
	all := slices.Concat(daemonFaults, shimFaults, loadFaults, agentFaults)
	runFaults(t, slices.DeleteFunc(all, func(f fault) bool { return !f.short }))
}

// runFaults runs several faults at once, each in a lab of its own: most of them
// wait most of the time.
func runFaults(t *testing.T, faults []fault) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.try(t)
		})
	}
}

func (f *fault) try(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	f.lab.StopTimeout = 3 * time.Minute // on a machine that is busy
	l, err := lab.Start(ctx, f.lab)
	must(t, err)
	t.Cleanup(func() {
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stop lab: %v", err)
		}
	})
	tr := &trial{t: t, lab: l}
	modes := f.modes
	if modes == nil && !f.agent {
		modes = bothModes
	}
	for name, o := range modes {
		tr.observers = append(tr.observers, observe(ctx, t, l, name, o))
	}
	slices.SortFunc(tr.observers, func(a, b *observer) int { return strings.Compare(b.seen.observer, a.seen.observer) }) // polling first
	for _, o := range tr.observers {
		must(t, eventually(ctx, func() bool { ok, err := o.healthy(ctx); return ok && err == nil }))
	}
	tr.scene = newScene(l)
	must(t, tr.scene.runPods(ctx, f.pods))
	must(t, tr.scene.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(uint8(i % 200))})
		return err
	}))
	f.run(ctx, tr)
}

// mainOf returns the first container of a pod.
func mainOf(p *lab.Pod) *lab.Container { return p.Containers()[0] }

// afterwards does some more to the pods, to see that all goes on as before.
func (tr *trial) afterwards(ctx context.Context) {
	t, l := tr.t, tr.lab
	t.Helper()
	p, err := l.RunPod(ctx, lab.PodSpec{Name: "after"})
	must(t, err)
	c, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(9)})
	must(t, err)
	tr.awaitAll(ctx)
	must(t, l.Trigger(ctx, c))
	tr.awaitAll(ctx)
	// One after the other, for between two lists both would be one.
	must(t, l.StopPod(ctx, tr.scene.pods[0]))
	tr.awaitAll(ctx)
	must(t, l.RemovePod(ctx, tr.scene.pods[0]))
	tr.awaitAll(ctx)
}
