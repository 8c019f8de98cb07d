//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// While 20 pods change at random, containerd is killed and restarted. The cache
// must equal the runtime's lists after the next relist, although no CRI event announces the changes
// in between.
func TestCacheIsCorrectAfterCrashInStorm(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	in := f.run(ctx, instanceOptions{name: "events", settings: withEvents})
	f.runPods(ctx, 20)
	for round := range 2 {
		crashInStorm(ctx, f, in, round)
	}
}

func crashInStorm(ctx context.Context, f *fixture, in *instance, round int) {
	t, l := f.t, f.lab
	t.Helper()
	victims := make([]*lab.Container, 5) // the victims run until they are killed
	for i := range victims {
		c := f.runContainer(ctx, f.pods[i], lab.ContainerSpec{Name: fmt.Sprint("victim-", round), Program: lab.Pause()})
		victims[i] = c
	}
	crash := time.Now().Add(4 * time.Second)
	var storm errgroup.Group
	for i, pod := range f.pods {
		storm.Go(func() error { return randomLives(ctx, l, pod, fmt.Sprint("storm-", round), uint64(i)) })
	}
	must(t, backoff.Wait(ctx, time.Until(crash)))
	l.Crash()
	_ = storm.Wait() // calls of the dead runtime have failed
	for _, pod := range f.pods[:5] {
		for _, c := range pod.Containers() {
			if err := l.KillProcess(ctx, c); slices.Contains(victims, c) { // other containers have ended already
				must(t, err)
			}
		}
	}
	answered := firstAnswer(ctx, l)
	must(t, l.Revive(ctx))
	back := <-answered
	must(t, await(ctx, func() error { return in.diffLists(ctx, l) }))
	took := time.Since(back).Round(10 * time.Millisecond)
	t.Logf("round %d: the cache was correct %v after the first answer", round, took)
	// Without a stream the next relist begins within RelistPeriod, a second. The other
	// second is for the list and the inspections of 20 pods on a busy machine.
	if took > 2*time.Second {
		t.Errorf("round %d: the cache was correct %v after the first answer, want at most 2 s", round, took)
	}
}

// firstAnswer returns when a runtime that is down answers again.
func firstAnswer(ctx context.Context, l *lab.Lab) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		_ = eventually(ctx, func() bool {
			_, err := l.Runtime().Version(ctx, &runtimeapi.VersionRequest{})
			return err == nil
		})
		at <- time.Now()
	}()
	return at
}

// During a storm on 20 pods a pipeline reports each step once, in order, with the exit code. The storm
// waits for a list after each step if the runtime sends no events, or sends each event to only one
// client: the test itself is a second client, which looks for exit codes. CRI-O does not announce every
// step: there, all pods are listed as often as by default.
func TestStorm(t *testing.T) {
	t.Parallel()
	ctx, f := newFixture(t, lab.Options{})
	events := f.lab.Traits().Events && !f.lab.Traits().EventsToOne
	settings := rareLists
	if !f.lab.Traits().AllEvents {
		settings = settings.With(withEvents)
	}
	in := f.run(ctx, instanceOptions{name: "events", settings: settings})
	if events {
		in.criEvents = f.receiveCRIEvents(ctx)
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

// lives is the number of containers of a pod in a storm.
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
