//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

const (
	// busyLoops is the number of loops beside the storm: they make the load of a machine that is
	// much too small.
	busyLoops = 20
	// quietStorm is how long containers start, end and are removed.
	quietStorm = 45 * time.Second
)

// neverSaid are the causes that must not be reported in a storm on a busy machine, however slow its
// runtime is.
var neverSaid = []verdict.Cause{verdict.HungShim, verdict.EmptyCgroup, verdict.ClientNotReading, verdict.NetworkPlugin, verdict.RuntimeUnready, verdict.ListTooLarge}

// In a storm on a busy machine, and while the runtime is stopped for a while, no finding says that an end
// was lost or that a shim hangs: the runtime recovers by itself.
func TestStormSaysNothing(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.timeout = 3 * time.Minute
	f.runPods(ctx, podsAtOnce)
	in := f.run(ctx, instanceOptions{name: "daemon", settings: polling, release: true})
	must(t, in.awaitHealth(ctx))
	said := make(map[string]int)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		ctx := watching
		for backoff.Wait(ctx, 200*time.Millisecond) == nil {
			s, err := in.status(ctx)
			if err != nil {
				continue
			}
			for _, found := range verdict.Of(s).Findings {
				if slices.Contains(neverSaid, found.Cause) {
					said[found.Summary]++
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-watched })
	for range busyLoops {
		f.background(ctx, func(ctx context.Context) { _ = exec.CommandContext(ctx, "sh", "-c", "while :; do :; done").Run() }) // killed
	}
	rounds := uint32(0)
	for began := time.Now(); time.Since(began) < quietStorm; rounds++ {
		f.changeContainers(ctx, rounds)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	// All end together while the runtime is stopped.
	f.runContainers(ctx, func(int) lab.ContainerSpec { return lab.ContainerSpec{Name: "last", Program: lab.Exit(3)} })
	must(t, f.lab.Freeze(ctx))
	killed := f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.KillProcess(ctx, newest(p)) })
	must(t, killed)
	must(t, backoff.Wait(ctx, 15*time.Second))
	must(t, f.lab.Thaw())
	f.step(ctx, f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.AwaitDied(ctx, newest(p)) }))
	must(t, backoff.Wait(ctx, 10*time.Second))
	t.Logf("FIGURE %d rounds of %d pods, load %s", rounds, podsAtOnce, strings.TrimSpace(string(load)))
	text, err := os.ReadFile(in.Log)
	must(t, err)
	for _, cause := range neverSaid {
		if strings.Contains(string(text), fmt.Sprintf("cause=%q", cause)) {
			t.Errorf("the log has %s:\n%s", cause, text)
		}
	}
	stop()
	<-watched
	if len(said) > 0 {
		t.Errorf("said, each this often: %v", said)
	}
}
