//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// The runtime's own events stand in for the lists, and what happened while the
// stream was down is found by a list after it.
func TestEventsOfTheRuntime(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{
		Events: pipeline.EventsAuto, RelistPeriodWithEvents: time.Hour, RelistThresholdWithEvents: 2 * time.Hour,
	}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 4))
	must(t, s.each(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := l.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Exit(uint8(i))})
		return err
	}))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.Trigger(ctx, p.Containers()[0]) }))
	c, err := l.RunContainer(ctx, s.pods[0], lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()})
	must(t, err)
	must(t, s.awaitAll(ctx))

	l.Crash()
	must(t, l.KillProcess(ctx, c))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, c))
	must(t, s.awaitAll(ctx))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) }))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.RemovePod(ctx, p) }))
}

// A runtime without events is watched by lists, unless events are demanded.
func TestRuntimeWithoutEvents(t *testing.T) {
	ctx, l := startLab(t, lab.Debian)
	_, seen := runLibrary(ctx, t, l, pipeline.Options{Events: pipeline.EventsAuto}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 2))
	must(t, s.each(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return l.StopPod(ctx, p) }))

	client, err := cri.New(l.Endpoint(), cri.Options{})
	must(t, err)
	strict, err := pipeline.New(pipeline.Options{Runtime: client, Events: pipeline.EventsRequire})
	must(t, err)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := strict.Run(ctx); !errors.Is(err, pleg.ErrNoEvents) {
		t.Errorf("run with required events: got %v, want %v", err, pleg.ErrNoEvents)
	}
	must(t, client.Close())
}
