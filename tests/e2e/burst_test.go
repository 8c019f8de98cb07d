//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// A burst must not lose, duplicate or reorder anything, and each pod's cache
// must be right at each of its events.
func TestFiftyPodsChangeAtOnce(t *testing.T) {
	const pods = 50
	ctx, l := startLab(t, lab.Pinned)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	prog := startProgram(ctx, t, l)
	s := newScene(l, seen, prog.seen)
	must(t, s.runPods(ctx, pods))

	program := func(i int) lab.Program {
		if i%2 == 0 {
			return lab.Exit(uint8(i % 5))
		}
		return lab.Panic()
	}
	for attempt := range uint32(2) {
		must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
			_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Attempt: attempt, Program: program(i)})
			return err
		}))
		must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error {
			containers := p.Containers()
			return l.Trigger(ctx, containers[len(containers)-1])
		}))
	}
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) }))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) }))
	checkSummary(t, prog.interrupt(t))
}

// A job may be over before anybody looks: its start may be missed, its end must
// not be.
func TestShortLivedContainers(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{RelistPeriod: time.Second}, false)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 10))
	jobs, jobsCtx := errgroup.WithContext(ctx)
	for _, pod := range s.pods {
		jobs.Go(func() error {
			c, err := l.RunContainer(jobsCtx, pod, lab.ContainerSpec{Name: "job", Program: lab.ExitAfter(7, 20*time.Millisecond)})
			if err != nil {
				return err
			}
			return errors.Join(l.AwaitDied(jobsCtx, c), awaitEnd(jobsCtx, seen, c))
		})
	}
	must(t, jobs.Wait())
}

// A pod that goes while its container runs died first, even if no list ever
// showed it dead.
func TestSuddenRemoval(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	// So seldom that stop and removal lie between two lists.
	_, seen := runLibrary(ctx, t, l, pipeline.Options{RelistPeriod: 5 * time.Second}, false)
	pod, err := l.RunPod(ctx, lab.PodSpec{Name: "sudden", HostNetwork: true})
	must(t, err)
	_, err = l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	must(t, await(ctx, l, pod.UID, seen))
	must(t, l.RemovePod(ctx, pod))

	byID := make(map[pleg.ContainerID][]pleg.EventType)
	want := []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved}
	must(t, eventually(ctx, func() bool { return len(seen.events(pleg.PodUID(pod.UID))) >= 2*len(want) }))
	for _, ev := range seen.events(pleg.PodUID(pod.UID)) {
		byID[ev.ContainerID] = append(byID[ev.ContainerID], ev.Type)
	}
	for id, got := range byID {
		if !slices.Equal(got, want) {
			t.Errorf("%.12s: got %v, want %v", id, got, want)
		}
	}
}

func awaitEnd(ctx context.Context, seen *record, c *lab.Container) error {
	return eventually(ctx, func() bool {
		return slices.ContainsFunc(seen.events(pleg.PodUID(c.Pod.UID)), func(ev pleg.Event) bool {
			died := ev.Type == pleg.ContainerDied && string(ev.ContainerID) == c.ID
			return died && ev.ExitCode != nil && *ev.ExitCode == 7 && ev.Reason == "Error"
		})
	})
}
