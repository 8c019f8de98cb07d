//go:build linux

package e2e_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// harsh starts an instance that follows events, beside a client that records the events of the
// runtime.
func harsh(t *testing.T, pods int) (context.Context, *fixture, *instance) {
	t.Helper()
	if traits := lab.DefaultRuntime().Traits(); !traits.Events || traits.EventsToOne {
		t.Skip("needs a runtime that tells each event to two clients")
	}
	ctx, f := newFixture(t, lab.Options{})
	f.timeout = 3 * time.Minute
	settings := rareLists
	if !f.lab.Traits().AllEvents {
		settings = settings.With(withEvents)
	}
	in := f.run(ctx, instanceOptions{name: "events", settings: settings, release: true})
	in.criEvents = f.receiveCRIEvents(ctx)
	f.runPods(ctx, pods)
	must(t, in.awaitStream(ctx))
	return ctx, f, in
}

// Containers that run for 5 to 20 ms are each reported once, in order and with their exit codes, also
// those that come and go while the program is stopped, twice.
func TestShortLivesWhileStopped(t *testing.T) {
	t.Parallel()
	ctx, f, in := harsh(t, 8)
	var lives errgroup.Group
	lives.Go(func() error { return f.concurrently(ctx, f.shortLives) })
	for range 2 {
		must(t, backoff.Wait(ctx, 2*time.Second))
		must(t, in.Pause())
		must(t, backoff.Wait(ctx, 5*time.Second))
		must(t, in.Continue())
	}
	must(t, lives.Wait())
	f.removePods(ctx)
	t.Logf("%d steps", len(f.lab.History().All()))
}

// shortLives runs containers that end by themselves, and removes each at once.
func (f *fixture) shortLives(ctx context.Context, i int, p *lab.Pod) error {
	rng := rand.New(rand.NewPCG(2, uint64(i)))
	for n := range uint32(lives) {
		runs := time.Duration(5+rng.IntN(16)) * time.Millisecond
		c, err := f.lab.RunContainer(ctx, p, lab.ContainerSpec{Name: "short", Attempt: n, Program: lab.ExitAfter(uint8(rng.IntN(256)), runs)})
		if err != nil {
			return err
		}
		if err := f.lab.AwaitDied(ctx, c); err != nil {
			return err
		}
		if err := removeDead(ctx, f.lab, c); err != nil {
			return err
		}
	}
	return nil
}

// An instance that gets 2 % of a CPU reports a storm late, but each step once, in order and with its exit
// code.
func TestStormWithLittleCPU(t *testing.T) {
	t.Parallel()
	ctx, f, in := harsh(t, 8)
	lift := limitCPU(t, in.PID(), 2)
	must(t, f.concurrently(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		return randomLives(ctx, f.lab, p, "main", uint64(i))
	}))
	must(t, f.concurrently(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.RemovePod(ctx, p) }))
	ended := time.Now()
	late, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	must(t, process.Await(late, func(context.Context) error { return in.diffSteps(f.lab.History().All()) }))
	t.Logf("%d steps, the last was reported within %v", len(f.lab.History().All()), time.Since(ended).Round(time.Millisecond))
	lift()
	f.awaitAll(ctx)
}

// limitCPU limits a process to a share of a CPU, in percent, until lift is called, or the test ends.
func limitCPU(t *testing.T, pid, percent int) (lift func()) {
	t.Helper()
	write := func(value int, path ...string) {
		must(t, os.WriteFile(filepath.Join(path...), []byte(strconv.Itoa(value)), 0o644))
	}
	const root, period = "/sys/fs/cgroup", 100_000
	parent := filepath.Join(root, "cpu") // of cgroup v1
	if _, err := os.Stat(parent); err != nil {
		parent = root
	}
	dir := filepath.Join(parent, "pleg-e2e-"+strconv.Itoa(pid))
	must(t, os.Mkdir(dir, 0o755))
	if parent == root {
		must(t, os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(strconv.Itoa(period*percent/100)+" "+strconv.Itoa(period)), 0o644))
	} else {
		write(period, dir, "cpu.cfs_period_us")
		write(period*percent/100, dir, "cpu.cfs_quota_us")
	}
	write(pid, dir, "cgroup.procs")
	lifted := false
	lift = func() {
		if !lifted {
			lifted = true
			write(pid, parent, "cgroup.procs")
			must(t, os.Remove(dir))
		}
	}
	t.Cleanup(lift)
	return lift
}

// Changes from before the program began are not reported, although a runtime sends old events to the
// first client that asks. The state at the start is marked as replayed.
func TestNothingFromBeforeTheStart(t *testing.T) {
	t.Parallel()
	ctx, f := newFixture(t, lab.Options{})
	f.runPods(ctx, 5)
	must(t, f.concurrently(ctx, f.shortLives))
	f.runContainers(ctx, mainExits)
	settings := daemon.Settings{"events": "auto", "relist-period": "1s", "relist-period-with-events": "2s"}
	in := f.run(ctx, instanceOptions{name: "events", settings: settings, release: true})
	in.paused = outage{to: time.Now()}
	must(t, backoff.Wait(ctx, 10*time.Second)) // the time of some lists, with the stream up
	t.Logf("the runtime handed out %v events of before", in.metric(ctx, t, "pleg_runtime_events_total"))
	values, err := in.Metrics(ctx)
	must(t, err)
	for kind, want := range map[pleg.EventType]float64{pleg.ContainerStarted: 2 * 5, pleg.ContainerDied: 0, pleg.ContainerRemoved: 0} {
		if got := values["pleg_events_total{"+string(kind)+"}"]; got != want {
			t.Errorf("%v events %s, want %v, of what is there", got, kind, want)
		}
	}
	in.mu.Lock()
	if i := slices.IndexFunc(in.stream.Events, func(ev pleg.Event) bool { return ev.PodUID != "" && !ev.Replayed }); i >= 0 {
		t.Errorf("%s is reported as new", describe(in.stream.Events[i]))
	}
	in.mu.Unlock()
	f.triggerAll(ctx)
	f.removePods(ctx)
}
