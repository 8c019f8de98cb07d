//go:build linux

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
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
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// waitTimeout bounds every wait. It is long because the machine may be busy.
const waitTimeout = 10 * time.Minute

// await calls done each period until it returns true, and returns how long that took.
func await(ctx context.Context, t *testing.T, what string, period time.Duration, done func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for !done() {
		if time.Since(began) > waitTimeout {
			t.Fatalf("%s: not within %v", what, waitTimeout)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
	return time.Since(began)
}

// containers returns the runtime's containers, newest first, or nil after an error.
func containers(ctx context.Context, l *lab.Lab) []*runtimeapi.Container {
	resp, err := l.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil
	}
	return resp.GetContainers()
}

// pod returns the name in the manifest, to which the kubelet adds the node name.
func pod(c *runtimeapi.Container) string {
	return strings.TrimSuffix(c.GetLabels()["io.kubernetes.pod.name"], "-lab")
}

// running returns the running container of each pod.
func running(ctx context.Context, l *lab.Lab) map[string]*runtimeapi.Container {
	out := make(map[string]*runtimeapi.Container)
	for _, c := range containers(ctx, l) {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out[pod(c)] = c
		}
	}
	return out
}

// pid returns the process of a container.
func pid(ctx context.Context, t *testing.T, l *lab.Lab, c *runtimeapi.Container) int {
	t.Helper()
	resp, err := l.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	kit.Must(t, err)
	var info struct{ PID int }
	kit.Must(t, json.Unmarshal([]byte(resp.GetInfo()["info"]), &info))
	if info.PID <= 1 {
		t.Fatalf("container %s has no process", c.GetId())
	}
	return info.PID
}

// victims are containers that are killed together.
type victims struct {
	l      *lab.Lab
	before map[string]*runtimeapi.Container // by pod
	pids   []int
	// at is the time from which the restart is measured.
	at time.Time
}

// choose returns the running containers of these pods.
func choose(ctx context.Context, t *testing.T, l *lab.Lab, names ...string) *victims {
	t.Helper()
	v := &victims{l: l, before: make(map[string]*runtimeapi.Container)}
	all := running(ctx, l)
	for _, name := range names {
		if all[name] == nil {
			t.Fatalf("%s is not running", name)
		}
		v.before[name] = all[name]
		v.pids = append(v.pids, pid(ctx, t, l, all[name]))
	}
	return v
}

// kill kills the processes, without the runtime.
func (v *victims) kill(t *testing.T) {
	t.Helper()
	v.at = time.Now()
	for _, pid := range v.pids {
		kit.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// restarts waits for a new container of each pod, and until the kubelet reports that it
// runs. It returns the times until the containers were created.
func (v *victims) restarts(ctx context.Context, k *kubelet) []time.Duration {
	k.t.Helper()
	restarted := make(map[string]time.Duration)
	await(ctx, k.t, fmt.Sprintf("restart of %d containers", len(v.before)), 100*time.Millisecond, func() bool {
		now, statuses := running(ctx, v.l), k.statuses(ctx)
		for name, old := range v.before {
			c := now[name]
			if c != nil && c.GetId() != old.GetId() && runningID(statuses[name]) == c.GetId() {
				restarted[name] = time.Unix(0, c.GetCreatedAt()).Sub(v.at)
			}
		}
		return len(restarted) == len(v.before)
	})
	return slices.Collect(maps.Values(restarted))
}

// get returns a page of the kubelet's read-only port.
func (k *kubelet) get(ctx context.Context, path string) (string, error) {
	return process.Get(ctx, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d%s", k.ports[1], path))
}

// runningID returns the id of the pod's container, or "" if it does not run.
func runningID(s corev1.PodStatus) string {
	for _, c := range s.ContainerStatuses {
		if c.State.Running != nil {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id
		}
	}
	return ""
}

// statuses returns the kubelet's statuses of its pods, by the name in the manifest, or nil after an
// error.
func (k *kubelet) statuses(ctx context.Context) map[string]corev1.PodStatus {
	text, err := k.get(ctx, "/pods")
	if err != nil {
		return nil
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil
	}
	out := make(map[string]corev1.PodStatus, len(list.Items))
	for _, p := range list.Items {
		out[strings.TrimSuffix(p.Name, "-lab")] = p.Status
	}
	return out
}

// metric returns the value of a series, or 0 if there is none.
func (k *kubelet) metric(ctx context.Context, series string) float64 {
	k.t.Helper()
	text, err := k.get(ctx, "/metrics")
	kit.Must(k.t, err)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			kit.Must(k.t, err)
			return v
		}
	}
	return 0
}

var errorLine = regexp.MustCompile(`^E\d{4} \S+ +\d+ ([a-z_]+\.go):\d+\] "?([^"]*)"?`)

// errors returns the number of errors of each kind in the kubelet's log so far.
func (k *kubelet) errors() map[string]int {
	k.t.Helper()
	f, err := os.Open(k.path("log"))
	kit.Must(k.t, err)
	defer f.Close()
	kinds := make(map[string]int)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := errorLine.FindStringSubmatch(lines.Text()); m != nil {
			kinds[m[1]+": "+m[2]]++
		}
	}
	return kinds
}
