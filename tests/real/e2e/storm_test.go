//go:build linux

package e2e_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// During a storm on 20 pods a pipeline reports each step once, in order, with the exit code.
// The few lists may overtake events that the machine delays. If the runtime has no events, or
// a second client, which looks for exit codes, would take them away, the storm waits for a
// list after each step. CRI-O announces not every step: there, all pods are listed as often as
// by default.
func TestStorm(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	events := f.lab.Traits().Events && !f.lab.Traits().EventsToOne
	settings := rareLists
	if !f.lab.Traits().AllEvents {
		settings = settings.With(withEvents)
	}
	in := f.run(ctx, instanceOptions{name: "events", settings: settings})
	if events {
		in.criEvents = f.receiveCRIEvents(ctx)
		in.mayLack = 3 // of 240 containers
	}
	f.runPods(ctx, 20)
	if events {
		f.forEachPod(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
			return randomLives(ctx, f.lab, p, "main", uint64(i))
		})
	} else {
		stormInSteps(ctx, f)
	}
	f.removePods(ctx)
	if f.lab.Traits().AllEvents && events {
		must(t, in.criEvents.awaitSteps(ctx, f.lab))
	}
	must(t, in.diffSteps(f.lab.History().All())) // with all exit codes that events carried
	t.Logf("%d steps", len(f.lab.History().All()))
}

// lives is how many containers a pod has in a storm.
const lives = 12

// randomLives starts containers of a pod one after the other, ends most of them, and removes
// some.
func randomLives(ctx context.Context, l *lab.Lab, p *lab.Pod, name string, seed uint64) error {
	rng := rand.New(rand.NewPCG(1, seed))
	for n := range lives {
		c, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: name, Attempt: uint32(n), Program: lab.Exit(uint8(rng.IntN(256)))})
		if err != nil {
			return err
		}
		if rng.IntN(5) == 0 {
			continue
		}
		end := l.Trigger
		if rng.IntN(3) == 0 {
			end = l.Kill
		}
		if err := end(ctx, c); err != nil {
			return err
		}
		if rng.IntN(2) == 0 {
			if err := removeDead(ctx, l, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// stormInSteps starts and ends containers in all pods at the same time, and removes
// some of them.
func stormInSteps(ctx context.Context, f *fixture) {
	f.t.Helper()
	for n := range lives {
		f.runContainers(ctx, func(i int) lab.ContainerSpec {
			return lab.ContainerSpec{Name: "main", Attempt: uint32(n), Program: lab.Exit(uint8(i + n))}
		})
		f.forEachPod(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
			if (i+n)%3 == 0 {
				return f.lab.Kill(ctx, newest(p))
			}
			return f.lab.Trigger(ctx, newest(p))
		})
		f.forEachPod(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
			if (i+n)%2 == 0 {
				return nil
			}
			return removeDead(ctx, f.lab, newest(p))
		})
	}
}
