//go:build linux

package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The changes in each trial while calls are measured: containers are killed together, and as many pods
// are added as removed.
const (
	killed   = 50
	replaced = 10
)

// TestKubeletRestart restarts kubelets in turn on one runtime with the same pods. The first relist then
// inspects all of them. KUBELET_E2E_SIZES are the numbers of pods, KUBELET_E2E_RUNS (5) is how often
// each kubelet starts, KUBELET_E2E_SPAN how long it is idle.
func TestKubeletRestart(t *testing.T) {
	kinds := strings.Fields(cmp.Or(os.Getenv("KUBELET_E2E_KINDS"), "stock small-step both-steps pipeline"))
	for text := range strings.FieldsSeq(cmp.Or(os.Getenv("KUBELET_E2E_SIZES"), "110 250 500")) {
		size, err := strconv.Atoi(text)
		if err != nil || size < killed+replaced {
			t.Fatalf("KUBELET_E2E_SIZES has %q, want numbers of at least %d", text, killed+replaced)
		}
		t.Run("pods="+text, func(t *testing.T) { restartWith(t, kinds, size) })
	}
}

func restartWith(t *testing.T, kinds []string, size int) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	results := newResults(kinds)
	title := fmt.Sprintf("%s, %d static pods: median (least to most), average ± standard deviation", lab.DefaultRuntime(), size)
	defer func() { t.Log("\n" + table(title, kinds, results, spread)) }()

	l, bin := startLab(ctx, t)
	k := newKubelet(t, bin, kinds[0], size-replaced)
	k.replace(0)
	k.start(l.Endpoint(), l.CgroupParent())
	await(ctx, t, "start of all pods", time.Second, func() bool { return len(running(ctx, l)) == size })
	trials := 0
	for range runs(t, 5) {
		for _, kind := range kinds {
			trials++
			k.stop()
			k.become(bin, kind)
			tr := &trial{result: results[kind], t: t, l: l, k: k}
			tr.tidy(ctx)
			tr.restartKubelet(ctx, size)
			tr.idle(ctx)
			tr.churn(ctx, trials)
			t.Logf("trial %d, %s, load %s", trials, kind, load(t))
		}
	}
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

// idle measures a span in which nothing changes.
func (tr *trial) idle(ctx context.Context) {
	pause(ctx, settleTime)
	before, began := tr.usage(), time.Now()
	pause(ctx, span(tr.t))
	tr.share("idle", before, time.Since(began))
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
	pause(ctx, time.Second) // the kubelet is now in the middle of the churn
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

// replace writes the manifests of the pods that come with a trial, and removes those of the trial before.
func (k *kubelet) replace(trial int) {
	k.t.Helper()
	for i := range replaced {
		if trial > 0 {
			k.removePod(replacedName(trial-1, i))
		}
		k.addPod(replacedName(trial, i), "Always", `"pause"`)
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

// histogram counts the calls that took at most a number of seconds, for each such limit in rising
// order.
type histogram []struct{ limit, calls float64 }

var bucketLine = regexp.MustCompile(`(?m)^kubelet_runtime_operations_duration_seconds_bucket\{operation_type="(\w+)",le="([^"]+)"\} (\S+)$`)

// calls returns the kubelet's own measurements of its calls to the runtime.
func (tr *trial) calls(ctx context.Context, operation string) histogram {
	text, err := tr.k.get(ctx, "/metrics")
	kit.Must(tr.t, err)
	return tr.parse(text, operation)
}

func (tr *trial) parse(text, operation string) histogram {
	var h histogram
	for _, match := range bucketLine.FindAllStringSubmatch(text, -1) {
		if match[1] != operation {
			continue
		}
		limit, limitErr := strconv.ParseFloat(match[2], 64)
		calls, err := strconv.ParseFloat(match[3], 64)
		kit.Must(tr.t, errors.Join(limitErr, err))
		h = append(h, struct{ limit, calls float64 }{limit, calls})
	}
	return h
}

func (h histogram) count() float64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].calls
}

// since returns the calls after those of before.
func (h histogram) since(before histogram) histogram {
	h = slices.Clone(h)
	for i := range before {
		h[i].calls -= before[i].calls
	}
	return h
}

// quantile is Prometheus's histogram_quantile.
func (h histogram) quantile(q float64) float64 {
	rank := q * h.count()
	low, fewer := 0.0, 0.0
	for _, b := range h {
		if math.IsInf(b.limit, 1) {
			break
		}
		if b.calls >= rank && b.calls > fewer {
			return low + (b.limit-low)*(rank-fewer)/(b.calls-fewer)
		}
		low, fewer = b.limit, b.calls
	}
	return low
}

func TestQuantile(t *testing.T) {
	h := histogram{{0.005, 50}, {0.0125, 90}, {0.03, 100}, {math.Inf(1), 100}}
	if got, want := h.quantile(0.95), 0.0125+(0.03-0.0125)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the quantile is %v, want %v", got, want)
	}
	if got := h.since(h).count(); got != 0 {
		t.Errorf("%v calls after all, want 0", got)
	}
}
