//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The first process of each container is looked up as soon as it runs, and the container after its
// removal. No answer is wrong. The log says how many lookups succeeded at once.
func TestLookupOfEachStart(t *testing.T) {
	t.Parallel()
	ctx, f := newFixture(t, lab.Options{})
	pipe := f.pipeline(ctx, pipeline.Options{Events: pipeline.EventsAuto})
	if _, err := pipe.Lookup(ctx, lookup.Query{PID: os.Getpid()}); !errors.Is(err, lookup.ErrNoContainer) {
		t.Errorf("this process: %v", err)
	}
	f.runPods(ctx, 24)
	var atOnce, slowest atomic.Int64
	check := func(c *lab.Container, got lookup.Container) {
		if string(got.ID) != c.ID || string(got.PodUID) != c.Pod.UID || got.PodName != c.Pod.Name || got.PodNamespace != c.Pod.Namespace || got.Name != c.Name {
			t.Errorf("container %s of pod %s: got %+v", c.Name, c.Pod.Name, got)
		}
	}
	for range 3 {
		must(t, f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error {
			c, err := f.lab.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Attempt: uint32(len(p.Containers())), Program: lab.Pause()})
			if err != nil {
				return err
			}
			query := lookup.Query{PID: f.lab.Processes(c)[0]}
			if got, err := pipe.Lookup(ctx, query); err == nil {
				atOnce.Add(1)
				check(c, got)
			} else if !errors.Is(err, lookup.ErrNotYet) {
				t.Errorf("a process that has just started: %v", err)
			}
			query.Wait = stepTimeout
			began := time.Now()
			got, err := pipe.Lookup(ctx, query)
			if err != nil {
				return err
			}
			check(c, got)
			if took := int64(time.Since(began)); took > slowest.Load() {
				slowest.Store(took)
			}
			byID, err := pipe.Lookup(ctx, lookup.Query{Container: pleg.ContainerID(c.ID)})
			check(c, byID)
			if got.CgroupPath == "" || byID.LogPath != got.LogPath {
				t.Errorf("container %s: cgroup %q, log %q", c.Name, got.CgroupPath, byID.LogPath)
			}
			return err
		}))
	}
	var all []*lab.Container
	for _, p := range f.pods {
		all = append(all, p.Containers()...)
	}
	t.Logf("FIGURE %d of %d processes were known at once, the others after at most %v", atOnce.Load(), len(all), time.Duration(slowest.Load()).Round(time.Millisecond))
	must(t, f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.StopPod(ctx, p) }))
	must(t, f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.RemovePod(ctx, p) }))
	for _, c := range all {
		must(t, await(ctx, func() error {
			got, err := pipe.Lookup(ctx, lookup.Query{Container: pleg.ContainerID(c.ID)})
			if err == nil && got.RemovedAt.IsZero() {
				err = errors.New("the container is not known as removed")
			}
			if err == nil {
				check(c, got)
			}
			return err
		}))
	}
}
