//go:build linux

// Package e2e_test runs real kubelets on a real containerd or CRI-O, one after the other, each with
// a runtime of its own: the released kubelet, kubelets with the steps of docs/dev/upstream.md, and a
// kubelet with the pipeline instead of GenericPLEG; the first and the last also with the gate
// EventedPLEG on. All must pass all steps; the log compares their times. build.sh builds them.
package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// Each run kills a container once, because the second restart of a container waits for
// 10 s. These are the numbers of pods for each step.
const (
	pods     = 60
	single   = 8  // killed one by one
	together = 30 // killed at the same time
	beside   = 3  // killed while the shim of another pod hangs
	down     = 3  // killed while the runtime is down
)

// withEvents is the end of the kinds of kubelets with the gate EventedPLEG on.
const (
	pipeline   = "pipeline"
	withEvents = "+events"
)

// kinds are the kinds in KUBELET_E2E_KINDS, or all.
var kinds = strings.Fields(cmp.Or(os.Getenv("KUBELET_E2E_KINDS"), "stock stock+events small-step both-steps pipeline pipeline+events"))

// runs is the number in KUBELET_E2E_RUNS.
func runs(t *testing.T, otherwise int) int {
	t.Helper()
	text := os.Getenv("KUBELET_E2E_RUNS")
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KUBELET_E2E_RUNS is %q, want a number of at least 1", text)
	}
	return n
}

// settleTime is how long a kubelet is left alone after the start of its pods.
const settleTime = 10 * time.Second

// unrelated are errors that any kubelet may log: on an overloaded machine, and if its
// garbage collection and the worker of a pod remove the same container.
var unrelated = map[string]int{
	"kubelet.go: Housekeeping took longer than expected": 1,
	"kuberuntime_gc.go: Failed to remove container":      1,
}

// TestSideBySide measures each kubelet as often as KUBELET_E2E_RUNS says, in turn.
func TestSideBySide(t *testing.T) {
	results := newResults(kinds)
	defer func() { t.Log("\n" + sideBySide(results)) }()
	for n := range runs(t, 2) {
		for _, kind := range kinds {
			if !t.Run(kind+"/run="+strconv.Itoa(n+1), func(t *testing.T) { measure(t, kind, results[kind]) }) {
				return
			}
		}
	}
	others := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return strings.HasPrefix(kind, pipeline) })
	if len(others) == 0 {
		return // nothing to compare the errors with
	}
	known := maps.Clone(unrelated)
	for _, kind := range others {
		maps.Copy(known, results[kind].errors)
	}
	for kind, r := range results {
		for text, n := range r.errors {
			if known[text] == 0 {
				t.Errorf("%s: only a kubelet with the pipeline logged this error, %d times: %s", kind, n, text)
			}
		}
	}
}

// trial is one kubelet on its runtime.
type trial struct {
	*result
	t *testing.T
	l *lab.Lab
	k *kubelet
	// used is the number of pods whose containers were killed.
	used int
}

func measure(t *testing.T, kind string, r *result) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, bin := startLab(ctx, t)
	tr := &trial{result: r, t: t, l: l, k: newKubelet(t, bin, kind, pods)}
	tr.k.start(l.Endpoint(), l.CgroupParent())
	r.seconds("all pods run after", await(ctx, t, "start of all pods", 100*time.Millisecond, func() bool {
		return len(running(ctx, l)) == pods
	}))
	pause(ctx, settleTime)
	tr.killContainers(ctx)
	tr.hangShim(ctx)
	tr.changeManifests(ctx)
	r.count(tr.k.errors())
	tr.restartRuntime(ctx)
	if n := tr.k.metric(ctx, "kubelet_pleg_discard_events"); n > 0 {
		t.Errorf("%v events were discarded", n)
	}
}

// startLab runs a runtime until the test ends, and returns the folder of the kubelets.
func startLab(ctx context.Context, t *testing.T) (l *lab.Lab, bin string) {
	t.Helper()
	bin, err := filepath.Abs(".bin")
	kit.Must(t, err)
	l, err = lab.Start(ctx, lab.Options{})
	kit.Must(t, err)
	t.Cleanup(func() {
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stop lab: %v", err)
		}
	})
	return l, bin
}

// next returns the names of n pods whose containers have not been killed.
func (tr *trial) next(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = podName(tr.used)
		tr.used++
	}
	return names
}

func (tr *trial) killContainers(ctx context.Context) {
	tr.restarts("one container killed", tr.oneByOne(ctx, single))
	v := choose(ctx, tr.t, tr.l, tr.next(together)...)
	before := tr.usage()
	v.kill(tr.t)
	tr.restarts(fmt.Sprintf("%d killed together", together), v.restarts(ctx, tr.k))
	used := tr.usage().since(before)
	tr.add("- CPU of the kubelet (ms)", milliseconds(used.kubelet))
	tr.add("- CPU of the runtime (ms)", milliseconds(used.runtime))
}

// oneByOne kills the containers of n pods one after the other.
func (tr *trial) oneByOne(ctx context.Context, n int) []time.Duration {
	var all []time.Duration
	for i, name := range tr.next(n) {
		v := choose(ctx, tr.t, tr.l, name)
		v.kill(tr.t)
		all = append(all, v.restarts(ctx, tr.k)...)
		// A restart follows a list. The pause grows, so that the kills are spread
		// over the time between two lists.
		pause(ctx, 2*time.Second+time.Duration(i)*time.Second/time.Duration(n))
	}
	return all
}

// hangShim stops the shim of a pod while its container and others are killed.
func (tr *trial) hangShim(ctx context.Context) {
	if !tr.l.Traits().Shims {
		return
	}
	hung := choose(ctx, tr.t, tr.l, tr.next(1)...)
	for name, c := range hung.before {
		pod := &lab.Pod{Name: name, SandboxID: c.GetPodSandboxId()}
		kit.Must(tr.t, tr.l.FreezeShim(ctx, pod))
		hung.kill(tr.t)
		tr.restarts("a shim hangs, a container of another pod killed", tr.oneByOne(ctx, beside))
		hung.at = time.Now()
		kit.Must(tr.t, tr.l.ThawShim(pod))
	}
	tr.restarts("- its own container, since the shim continues", hung.restarts(ctx, tr.k))
}

// changeManifests removes a pod, and adds a pod that ends.
func (tr *trial) changeManifests(ctx context.Context) {
	gone := podName(pods - 1)
	tr.k.removePod(gone)
	tr.seconds("manifest removed: pod gone after", await(ctx, tr.t, "end of a pod whose manifest is gone", 20*time.Millisecond, func() bool {
		return running(ctx, tr.l)[gone] == nil
	}))
	tr.k.addPod("job", "Never", `"exit", "7", "1s"`)
	tr.seconds("pod that exits after 1 s: reported after", await(ctx, tr.t, "report of a pod that ended", 100*time.Millisecond, func() bool {
		return tr.k.statuses(ctx)["job"].Phase == corev1.PodFailed
	}))
	for _, c := range tr.k.statuses(ctx)["job"].ContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 7 || c.RestartCount != 0 {
			tr.t.Errorf("the kubelet reports %+v for a container that exited with 7", c)
		}
	}
}

// restartRuntime kills and restarts the runtime. In between some containers end; the
// others keep running.
func (tr *trial) restartRuntime(ctx context.Context) {
	before := running(ctx, tr.l)
	v := choose(ctx, tr.t, tr.l, tr.next(down)...)
	tr.l.Crash()
	v.kill(tr.t)
	v.at = time.Now()
	kit.Must(tr.t, tr.l.Revive(ctx))
	tr.restarts("killed while the runtime is down, since its restart", v.restarts(ctx, tr.k))
	tr.requireSame(ctx, "the restart of the runtime", before, v)
	tr.restarts("one killed after that", tr.oneByOne(ctx, down))
}

// requireSame fails the test if a container has been replaced, except the victims.
func (tr *trial) requireSame(ctx context.Context, since string, before map[string]*runtimeapi.Container, v *victims) {
	now := running(ctx, tr.l)
	for pod, was := range before {
		if v != nil && v.before[pod] != nil {
			continue
		}
		if c := now[pod]; c == nil || c.GetId() != was.GetId() {
			tr.t.Errorf("the container of %s does not run any more since %s", pod, since)
		}
	}
}

// usage is the CPU time of the kubelet and of the runtime.
type usage struct{ kubelet, runtime time.Duration }

func (tr *trial) usage() usage {
	kubelet, err := process.UseOf(tr.k.PID())
	kit.Must(tr.t, err)
	runtime, err := process.UseOf(tr.l.PID())
	kit.Must(tr.t, err)
	return usage{kubelet.CPU, runtime.CPU}
}

func (u usage) since(before usage) usage {
	return usage{u.kubelet - before.kubelet, u.runtime - before.runtime}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
