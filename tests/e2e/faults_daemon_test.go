//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// daemonFaults are those of containerd itself.
var daemonFaults = []fault{
	{name: "containerd stopped for 150 s", pods: 5, run: freeze(150 * time.Second), modes: map[string]pipeline.Options{
		"polling":               bothModes["polling"],
		"events":                bothModes["events"],
		"polling with defaults": {RelistPeriod: time.Second, RelistThreshold: pipeline.DefaultRelistThreshold},
		"events with defaults": {
			RelistPeriod: time.Second, RelistThreshold: pipeline.DefaultRelistThreshold, Events: pipeline.EventsAuto,
			RelistPeriodWithEvents: pipeline.DefaultRelistPeriodWithEvents, RelistThresholdWithEvents: pipeline.DefaultRelistThresholdWithEvents,
		},
	}},
	{name: "containerd stopped for 30 s", pods: 5, run: freeze(30 * time.Second)},
	{name: "containerd stopped for 1 s", short: true, pods: 5, run: freeze(time.Second)},
	{name: "containerd killed and back with a new socket", short: true, pods: 6, run: restart(func(_ context.Context, l *lab.Lab) { l.Crash() }, time.Second)},
	{name: "containerd ended in order and back", pods: 6, run: restart(func(ctx context.Context, l *lab.Lab) { l.Terminate(ctx) }, time.Second)},
	{name: "containerd gone for 20 s", pods: 6, run: restart(func(_ context.Context, l *lab.Lab) { l.Crash() }, 20*time.Second)},
	{name: "containerd killed with 100 pods", pods: 100, run: restart(func(_ context.Context, l *lab.Lab) { l.Crash() }, 0)},
	{name: "containerd killed in a burst of starts", pods: 10, run: crashInABurst},
}

// freeze stops containerd for a while. Meanwhile containers are killed and end
// by themselves, and somebody asks for a new pod.
func freeze(lasts time.Duration) func(context.Context, *trial) {
	return func(ctx context.Context, tr *trial) {
		t, l := tr.t, tr.lab
		tr.inject(ctx)
		before := ledgerState(l)
		must(t, l.Freeze(ctx))
		victim, exits := mainOf(tr.scene.pods[0]), mainOf(tr.scene.pods[1])
		must(t, l.KillProcess(ctx, victim))
		must(t, l.TriggerProcess(exits))
		var asked errgroup.Group
		asked.Go(func() error {
			_, err := l.RunPod(ctx, lab.PodSpec{Name: "asked"})
			return err
		})
		must(t, sleepUntil(ctx, tr.injected.Add(lasts)))
		tr.keeps(ctx, before)
		tr.lift()
		must(t, l.Thaw())
		must(t, l.AwaitDied(ctx, victim))
		must(t, l.AwaitDied(ctx, exits))
		must(t, asked.Wait())
		tr.end(ctx, true)
		for _, o := range tr.observers {
			if n := o.missed(); n > 0 && lasts < cri.DefaultEventProbePeriod {
				t.Errorf("%s: %v events were missed, though the stream never broke", o.seen.observer, n)
			}
		}
		tr.afterwards(ctx)
	}
}

// restart ends containerd and starts it again after a while. Meanwhile a third
// of the containers end.
func restart(end func(context.Context, *lab.Lab), gone time.Duration) func(context.Context, *trial) {
	return func(ctx context.Context, tr *trial) {
		t, l := tr.t, tr.lab
		tr.inject(ctx)
		before := ledgerState(l)
		was := inode(t, l)
		end(ctx, l)
		tr.broke = true
		var dead []*lab.Container
		for i, p := range tr.scene.pods {
			if i%3 == 0 {
				must(t, l.KillProcess(ctx, mainOf(p)))
				dead = append(dead, mainOf(p))
			}
		}
		// Kept, so that the new one cannot get its number; a containerd that ends
		// in order takes it away itself.
		kept := os.Rename(socket(l), socket(l)+".old") == nil
		must(t, sleepUntil(ctx, tr.injected.Add(gone)))
		tr.keeps(ctx, before)
		must(t, l.Revive(ctx))
		tr.lift()
		if kept && inode(t, l) == was {
			t.Error("the socket is the old one")
		}
		for _, c := range dead {
			must(t, l.AwaitDied(ctx, c))
		}
		tr.end(ctx, true)
		tr.afterwards(ctx)
	}
}

func socket(l *lab.Lab) string { return strings.TrimPrefix(l.Endpoint(), "unix://") }

func inode(t *testing.T, l *lab.Lab) uint64 {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(socket(l), &st))
	return st.Ino
}

// crashInABurst kills containerd while containers are being made. What the
// runtime knows of them afterwards is the truth: the lab cannot know how far each
// call got.
func crashInABurst(ctx context.Context, tr *trial) {
	t, l := tr.t, tr.lab
	tr.inject(ctx)
	var burst errgroup.Group
	stop := time.Now().Add(time.Minute)
	for i, p := range tr.scene.pods {
		burst.Go(func() error { return rage(ctx, l, p, fmt.Sprint("burst-", i), stop) })
	}
	must(t, sleepUntil(ctx, time.Now().Add(2*time.Second)))
	l.Crash()
	_ = burst.Wait() // what hit the dead runtime has failed
	must(t, l.Revive(ctx))
	tr.lift()
	var diff error
	for _, o := range tr.observers {
		must(t, errors.Join(eventually(ctx, func() bool {
			diff = tr.matchesLists(ctx, o)
			return diff == nil
		}), diff))
		t.Logf("FIGURE | %s | %s | fault %.1f s | unhealthy after - | known %.2f s after the lift | missed events %v",
			tr.row(), o.seen.observer, tr.lifted.Sub(tr.injected).Seconds(), time.Since(tr.lifted).Seconds(), o.missed())
	}
	must(t, sleepUntil(ctx, time.Now().Add(quiet)))
	for _, o := range tr.observers {
		for _, p := range tr.scene.pods {
			wantForward(t, o.seen.events(podUID(p)))
		}
	}
}
