//go:build linux

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/hint/pidfd"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// pidfds returns how many pidfds this process has open.
func pidfds(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, file := range files {
		if to, _ := os.Readlink(file); strings.Contains(to, "pidfd") {
			n++
		}
	}
	return n
}

// The kernel reports each end, with its code, also while the runtime is down, and the pipeline
// reports it long before the next relist. The log says how long after the process.
func TestKernelTellsEnds(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	pipe := f.pipeline(ctx, pipeline.Options{RelistPeriod: time.Minute})
	died, err := pipe.Subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied}, OmitSandboxes: true}})
	must(t, err)
	var mu sync.Mutex
	ends := make(map[string]pidfd.End)
	f.background(ctx, func(ctx context.Context) {
		_ = pidfd.Run(ctx, pipe, pidfd.Options{Ended: func(e pidfd.End) {
			mu.Lock()
			defer mu.Unlock()
			ends[string(e.Container.ID)] = e
		}})
	})
	const pods = 8
	before := pidfds(t)
	f.runPods(ctx, pods)
	must(t, f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error {
		_, err := f.lab.RunContainer(ctx, p, lab.ContainerSpec{Name: "main", Program: lab.Pause()})
		return err
	}))
	must(t, pipe.Relist(ctx))
	must(t, eventually(ctx, func() bool { return pidfds(t) >= before+pods }))
	kill := func(p *lab.Pod) (pidfd.End, time.Duration) {
		t.Helper()
		c := p.Containers()[0]
		began := time.Now()
		must(t, f.lab.KillProcess(ctx, c))
		var end pidfd.End
		must(t, await(ctx, func() error {
			mu.Lock()
			defer mu.Unlock()
			var ok bool
			if end, ok = ends[c.ID]; !ok {
				return errNotYet
			}
			return nil
		}))
		if end.ExitCode != nil && *end.ExitCode != 137 { // nil before Linux 6.15
			t.Errorf("container %s: %+v, want 137", c.ID, end)
		}
		return end, end.At.Sub(began)
	}
	var kernel, told time.Duration
	for _, p := range f.pods[1:] {
		end, after := kill(p)
		if ev := <-died.Events(); string(ev.ContainerID) != p.Containers()[0].ID {
			t.Errorf("got %+v", ev)
		}
		kernel, told = max(kernel, after), max(told, time.Since(end.At))
	}
	t.Logf("FIGURE known from the kernel after at most %v, told by the pipeline at most %v later", kernel, told)
	f.lab.Crash()
	_, after := kill(f.pods[0])
	t.Logf("FIGURE with the runtime down after %v", after)
}
