//go:build linux

// Package e2e_test runs two kubelets on a real containerd, one after the other: the
// released one, and one with the pipeline instead of GenericPLEG. Both must pass all
// steps; the log compares their times. build.sh builds them.
package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

const (
	pods = 60
	// The test kills single pods one by one, together pods at the same time, and
	// after a restart of containerd afterwards pods one by one. It kills each pod
	// once, because the second restart of a container waits for 10 s.
	single     = 20
	together   = 30
	afterwards = 8
	idle       = 20 * time.Second
)

// busy is an error that a kubelet logs on an overloaded machine.
const busy = "kubelet.go: Housekeeping took longer than expected"

// result has the measurements of one kubelet.
type result struct {
	started                 time.Duration
	relist                  float64 // ms, mean while idle
	cpu                     float64 // share of a core while idle
	rss                     float64 // MiB
	one                     time.Duration
	many, manyMax           time.Duration
	removed, exited, revive time.Duration
	busyRelist              float64 // ms, mean while containers were killed together
	errors                  map[string]int
}

func TestSideBySide(t *testing.T) {
	results := make(map[string]*result)
	kinds := []string{"stock", "pipeline"}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { results[kind] = measure(t, kind) })
	}
	stock, ours := results["stock"], results["pipeline"]
	if stock == nil || ours == nil {
		t.Fatal("one of the kubelets failed")
	}
	t.Log("\n" + table(stock, ours))
	for kind, n := range ours.errors {
		if stock.errors[kind] == 0 && kind != busy {
			t.Errorf("only the kubelet with the pipeline logged this error, %d times: %s", n, kind)
		}
	}
}

func measure(t *testing.T, kind string) *result {
	binary, err := filepath.Abs(filepath.Join(".bin", "kubelet-"+kind))
	must(t, err)
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("run build.sh first: %v", err)
	}
	// Package lab must run inside the module tests/e2e, which pins containerd.
	t.Chdir(filepath.Join("..", "..", "tests", "e2e"))
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, err := lab.Start(ctx, lab.Options{StopTimeout: 3 * time.Minute})
	must(t, err)
	t.Cleanup(func() {
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stop lab: %v", err)
		}
	})
	k := startKubelet(t, l, binary, pods)
	r := &result{}
	r.started = await(ctx, t, "start of all pods", func() bool { return len(running(ctx, l)) == pods })
	r.measureIdle(ctx, k)
	r.killContainers(ctx, t, l, k)
	r.changeManifests(ctx, t, l, k)
	r.errors = k.errors()
	r.restartRuntime(ctx, t, l)
	if n := k.metric(ctx, "kubelet_pleg_discard_events"); n > 0 {
		t.Errorf("%v events were discarded", n)
	}
	return r
}

// measureIdle measures the kubelet while no pod changes.
func (r *result) measureIdle(ctx context.Context, k *kubelet) {
	pause(ctx, 15*time.Second) // until the work of the start is done
	cpu, relists := k.cpu(), k.relists(ctx)
	pause(ctx, idle)
	r.cpu = (k.cpu() - cpu).Seconds() / idle.Seconds()
	r.relist = k.relists(ctx).since(relists)
	r.rss = k.rss()
}

func (r *result) killContainers(ctx context.Context, t *testing.T, l *lab.Lab, k *kubelet) {
	r.one = oneByOne(ctx, t, l, 0, single)
	names := make([]string, together)
	for i := range names {
		names[i] = podName(single + i)
	}
	relists := k.relists(ctx)
	took := restarts(ctx, t, l, names...)
	r.busyRelist = k.relists(ctx).since(relists)
	slices.Sort(took)
	r.many, r.manyMax = took[len(took)/2], took[len(took)-1]
}

// oneByOne kills the containers of n pods one by one and returns the mean time of
// their restarts.
func oneByOne(ctx context.Context, t *testing.T, l *lab.Lab, first, n int) time.Duration {
	var took time.Duration
	for i := range n {
		took += restarts(ctx, t, l, podName(first+i))[0]
		// A restart follows a list. The pause grows, so that the kills are spread
		// over the time between two lists.
		pause(ctx, 2*time.Second+time.Duration(i)*time.Second/time.Duration(n))
	}
	return took / time.Duration(n)
}

// changeManifests removes a pod, and adds one that ends.
func (r *result) changeManifests(ctx context.Context, t *testing.T, l *lab.Lab, k *kubelet) {
	gone := podName(pods - 1)
	k.removePod(gone)
	r.removed = await(ctx, t, "end of a pod whose manifest is gone", func() bool { return running(ctx, l)[gone] == nil })
	k.addPod("job", "Never", `"exit", "7", "1s"`)
	r.exited = await(ctx, t, "report of a pod that ended", func() bool { return k.status(ctx, "job").Phase == "Failed" })
	for _, c := range k.status(ctx, "job").ContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 7 || c.RestartCount != 0 {
			t.Errorf("the kubelet reports %+v for a container that exited with 7", c)
		}
	}
}

// restartRuntime kills and restarts containerd. The containers keep running, and the
// kubelet restarts those that end later.
func (r *result) restartRuntime(ctx context.Context, t *testing.T, l *lab.Lab) {
	before := running(ctx, l)
	l.Crash()
	must(t, l.Revive(ctx))
	for pod, c := range running(ctx, l) {
		if was := before[pod]; was == nil || was.GetId() != c.GetId() {
			t.Errorf("%s has a new container after the restart of containerd", pod)
		}
	}
	r.revive = oneByOne(ctx, t, l, single+together, afterwards)
}

// relists has the kubelet's metrics for its relists.
type relists struct{ count, sum float64 }

func (k *kubelet) relists(ctx context.Context) relists {
	return relists{
		count: k.metric(ctx, "kubelet_pleg_relist_duration_seconds_count"),
		sum:   k.metric(ctx, "kubelet_pleg_relist_duration_seconds_sum"),
	}
}

// since returns the mean duration of the relists after before, in milliseconds.
func (r relists) since(before relists) float64 {
	return (r.sum - before.sum) / max(1, r.count-before.count) * 1000
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func table(stock, ours *result) string {
	var out strings.Builder
	row := func(what, unit string, of func(*result) float64) {
		fmt.Fprintf(&out, "%-46s %10.1f %10.1f %s\n", what, of(stock), of(ours), unit)
	}
	fmt.Fprintf(&out, "%-46s %10s %10s\n", fmt.Sprintf("%d static pods", pods), "stock", "pipeline")
	ms := func(of func(*result) time.Duration) func(*result) float64 {
		return func(r *result) float64 { return float64(of(r)) / float64(time.Millisecond) }
	}
	row("all pods running after", "s", func(r *result) float64 { return r.started.Seconds() })
	row("idle: relist, mean", "ms", func(r *result) float64 { return r.relist })
	row("idle: CPU", "% of a core", func(r *result) float64 { return 100 * r.cpu })
	row("idle: memory", "MiB", func(r *result) float64 { return r.rss })
	row(fmt.Sprintf("one container killed: restarted, mean of %d", single), "ms", ms(func(r *result) time.Duration { return r.one }))
	row(fmt.Sprintf("%d killed together: restarted, median", together), "ms", ms(func(r *result) time.Duration { return r.many }))
	row(fmt.Sprintf("%d killed together: restarted, last", together), "ms", ms(func(r *result) time.Duration { return r.manyMax }))
	row(fmt.Sprintf("%d killed together: relist, mean", together), "ms", func(r *result) float64 { return r.busyRelist })
	row("manifest removed: pod gone after", "ms", ms(func(r *result) time.Duration { return r.removed }))
	row("pod that exits: reported after", "ms", ms(func(r *result) time.Duration { return r.exited }))
	row(fmt.Sprintf("killed after a restart of containerd, mean of %d", afterwards), "ms", ms(func(r *result) time.Duration { return r.revive }))
	for _, side := range []struct {
		name string
		r    *result
	}{{"stock", stock}, {"pipeline", ours}} {
		fmt.Fprintf(&out, "errors in the log, %s:\n", side.name)
		for _, kind := range slices.Sorted(maps.Keys(side.r.errors)) {
			fmt.Fprintf(&out, "  %4d %s\n", side.r.errors[kind], kind)
		}
	}
	return out.String()
}
