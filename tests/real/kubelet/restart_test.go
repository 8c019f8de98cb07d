//go:build linux

// Package e2e_test runs real kubelets on a real containerd or CRI-O: the released kubelet, kubelets with
// the steps of docs/dev/upstream.md, and a kubelet with the pipeline instead of GenericPLEG; the first and
// the last also with the gate EventedPLEG on. All must pass; the log compares their times. build.sh builds
// them.
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

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The changes in each trial: containers are killed together while calls are measured, and as many pods are
// added as removed; then others are killed while the runtime is down. Each trial kills a container once: its
// second restart would wait for 10 s.
const (
	killed   = 50
	replaced = 10
	down     = 3
)

// withEvents is the end of the kinds of kubelets with the gate EventedPLEG on.
const (
	pipeline   = "pipeline"
	withEvents = "+events"
)

// channelSize is how many events wait for a kubelet that does not read them. The first relist sends two for
// each pod. GenericPLEG discards what does not fit; the pipeline does not.
const channelSize = 1000

// settleTime is how long a kubelet is left alone after the start of its pods.
const settleTime = 10 * time.Second

// unrelated are errors that any kubelet may log: on an overloaded machine, and if its
// garbage collection and the worker of a pod remove the same container.
var unrelated = map[string]int{
	"kubelet.go: Housekeeping took longer than expected": 1,
	"kuberuntime_gc.go: Failed to remove container":      1,
}

// TestKubeletRestart restarts kubelets in turn on one runtime with the same pods. The first relist then
// inspects all of them. KUBELET_E2E_KINDS are the kubelets, KUBELET_E2E_SIZES the numbers of pods,
// KUBELET_E2E_RUNS is how often each kubelet starts, KUBELET_E2E_SPAN how long it is idle.
func TestKubeletRestart(t *testing.T) {
	kinds := strings.Fields(cmp.Or(os.Getenv("KUBELET_E2E_KINDS"), "stock stock+events small-step both-steps pipeline pipeline+events"))
	for text := range strings.FieldsSeq(cmp.Or(os.Getenv("KUBELET_E2E_SIZES"), "70")) {
		size, err := strconv.Atoi(text)
		if err != nil || size < killed+replaced+down {
			t.Fatalf("KUBELET_E2E_SIZES has %q, want numbers of at least %d", text, killed+replaced+down)
		}
		t.Run("pods="+text, func(t *testing.T) { restartWith(t, kinds, size) })
	}
}

// trial is one kubelet on the runtime.
type trial struct {
	*result
	t *testing.T
	l *lab.Lab
	k *kubelet
	// used is the number of pods whose containers were killed.
	used int
}

func restartWith(t *testing.T, kinds []string, size int) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	results := newResults(kinds)
	title := fmt.Sprintf("%s, %d static pods: median (least to most), average ± standard deviation", lab.DefaultRuntime(), size)
	defer func() { t.Log("\n" + table(title, kinds, results)) }()

	l, bin := startLab(ctx, t)
	k := newKubelet(t, bin, kinds[0], size-replaced)
	k.replace(0)
	k.start(l.Endpoint(), l.CgroupParent())
	await(ctx, t, "start of all pods", time.Second, func() bool { return len(running(ctx, l)) == size })
	trials := 0
	for range runs(t, 1) {
		for _, kind := range kinds {
			trials++
			k.stop()
			k.become(bin, kind)
			tr := &trial{result: results[kind], t: t, l: l, k: k}
			tr.tidy(ctx)
			before := k.errors()
			tr.restartKubelet(ctx, size)
			tr.idle(ctx)
			tr.churn(ctx, trials)
			tr.count(before, k.errors())
			tr.restartRuntime(ctx)
			discarded := k.metric(ctx, "kubelet_pleg_discard_events")
			tr.add("events discarded", discarded)
			if discarded > 0 && (2*size < channelSize || strings.HasPrefix(kind, pipeline)) {
				t.Errorf("%s: %v events were discarded", kind, discarded)
			}
			t.Logf("trial %d, %s, load %s", trials, kind, load(t))
		}
	}
	requireErrors(t, kinds, results)
}

// requireErrors fails the test if a kubelet with the pipeline has logged an error that no other has.
func requireErrors(t *testing.T, kinds []string, results map[string]*result) {
	t.Helper()
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

// tidy removes the remains of earlier trials while no kubelet runs, so that the first relist asks for one
// container of each pod, and no kubelet asks for other containers.
func (tr *trial) tidy(ctx context.Context) {
	for _, c := range containers(ctx, tr.l) {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			_, err := tr.l.Runtime().RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()})
			kit.Must(tr.t, err)
		}
	}
	removeLogLinks(tr.t)
}

// restartKubelet starts the kubelet beside pods that run.
func (tr *trial) restartKubelet(ctx context.Context, size int) {
	before, began := running(ctx, tr.l), time.Now()
	tr.k.start(tr.l.Endpoint(), tr.l.CgroupParent())
	await(ctx, tr.t, "status of each container", 50*time.Millisecond, func() bool {
		text, err := tr.k.get(ctx, "/metrics")
		return err == nil && tr.parse(text, "container_status").count() >= float64(size)
	})
	tr.seconds("restart: first complete relist", time.Since(began))
	await(ctx, tr.t, "all pods Ready", 200*time.Millisecond, func() bool {
		ready := 0
		for _, status := range tr.k.statuses(ctx) {
			for _, c := range status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		return ready == size
	})
	tr.seconds("restart: all pods Ready", time.Since(began))
	tr.add("- container_status, p99 (ms)", 1000*tr.calls(ctx, "container_status").quantile(0.99))
	tr.add("- CPU of the kubelet (ms)", milliseconds(tr.usage().kubelet))
	tr.requireSame(ctx, "the restart of the kubelet", before, nil)
}

// span is how long the idle node is measured, as KUBELET_E2E_SPAN says.
func span(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("KUBELET_E2E_SPAN"), "20s"))
	kit.Must(t, err)
	return d
}

// idle measures a span in which nothing changes.
func (tr *trial) idle(ctx context.Context) {
	_ = backoff.Wait(ctx, settleTime)
	before, began := tr.usage(), time.Now()
	_ = backoff.Wait(ctx, span(tr.t))
	used, took := tr.usage().since(before), time.Since(began)
	tr.add("idle: CPU of the kubelet (% of a core)", 100*used.kubelet.Seconds()/took.Seconds())
	tr.add("idle: CPU of the runtime (% of a core)", 100*used.runtime.Seconds()/took.Seconds())
	tr.memory(ctx, "idle")
}

func (tr *trial) memory(ctx context.Context, what string) {
	tr.add(what+": heap in use (MiB)", tr.k.metric(ctx, "go_memstats_heap_inuse_bytes")/(1<<20))
	tr.add(what+": goroutines", tr.k.metric(ctx, "go_goroutines"))
}

// churn kills containers and replaces pods.
func (tr *trial) churn(ctx context.Context, trials int) {
	operations := []string{"container_status", "create_container", "start_container", "stop_podsandbox", "stop_container"}
	calls := make(map[string]histogram)
	for _, operation := range operations {
		calls[operation] = tr.calls(ctx, operation)
	}
	victims := choose(ctx, tr.t, tr.l, tr.next(killed)...)
	before := tr.usage()
	tr.k.replace(trials)
	victims.kill(tr.t)
	_ = backoff.Wait(ctx, time.Second) // the kubelet is now in the middle of the churn
	tr.memory(ctx, "churn")
	tr.restarts(fmt.Sprintf("churn: %d killed, %d pods replaced", killed, replaced), victims.restarts(ctx, tr.k))
	await(ctx, tr.t, "replacement of pods", time.Second, func() bool {
		now := running(ctx, tr.l)
		for i := range replaced {
			if now[replacedName(trials, i)] == nil || now[replacedName(trials-1, i)] != nil {
				return false
			}
		}
		return true
	})
	tr.add("churn: CPU of the kubelet (ms)", milliseconds(tr.usage().since(before).kubelet))
	for _, operation := range operations {
		tr.add("churn: "+operation+", p99 (ms)", 1000*tr.calls(ctx, operation).since(calls[operation]).quantile(0.99))
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

// replace writes the manifests of the pods that come with a trial, and removes those of the trial before.
func (k *kubelet) replace(trial int) {
	k.t.Helper()
	for i := range replaced {
		if trial > 0 {
			k.removePod(replacedName(trial-1, i))
		}
		k.addPod(replacedName(trial, i))
	}
}

func replacedName(trial, i int) string { return fmt.Sprintf("trial-%d-%d", trial, i) }

// load is how many processes the machine was running, over 1, 5 and 15 minutes.
func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	kit.Must(t, err)
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
