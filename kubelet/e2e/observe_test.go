//go:build linux

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// waitTimeout bounds every wait. It is long because the machine may be busy.
const waitTimeout = 3 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await polls until done returns true, and returns how long that took.
func await(ctx context.Context, t *testing.T, what string, done func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
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

// kill kills the process of a container without the runtime.
func kill(ctx context.Context, t *testing.T, l *lab.Lab, c *runtimeapi.Container) {
	t.Helper()
	resp, err := l.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	must(t, err)
	var info struct{ PID int }
	must(t, json.Unmarshal([]byte(resp.GetInfo()["info"]), &info))
	if info.PID <= 1 {
		t.Fatalf("container %s has no process", c.GetId())
	}
	must(t, syscall.Kill(info.PID, syscall.SIGKILL))
}

// restarts kills the containers of these pods together and returns the times until
// each pod had a new one.
func restarts(ctx context.Context, t *testing.T, l *lab.Lab, names ...string) []time.Duration {
	t.Helper()
	before := running(ctx, l)
	for _, name := range names {
		if before[name] == nil {
			t.Fatalf("%s is not running", name)
		}
		kill(ctx, t, l, before[name])
	}
	killed := time.Now()
	took := make(map[string]time.Duration)
	await(ctx, t, fmt.Sprintf("restart of %d containers", len(names)), func() bool {
		now := running(ctx, l)
		for _, name := range names {
			c := now[name]
			if _, ok := took[name]; !ok && c != nil && c.GetId() != before[name].GetId() {
				took[name] = time.Unix(0, c.GetCreatedAt()).Sub(killed)
			}
		}
		return len(took) == len(names)
	})
	return slices.Collect(maps.Values(took))
}

// get returns a page of the kubelet's read-only port.
func (k *kubelet) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", k.port, path), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// podStatus is the status of a pod in the kubelet's /pods.
type podStatus struct {
	Phase             string `json:"phase"`
	ContainerStatuses []struct {
		State struct {
			Terminated *struct {
				ExitCode int    `json:"exitCode"`
				Reason   string `json:"reason"`
			} `json:"terminated"`
		} `json:"state"`
		RestartCount int `json:"restartCount"`
	} `json:"containerStatuses"`
}

func (k *kubelet) status(ctx context.Context, name string) podStatus {
	text, err := k.get(ctx, "/pods")
	if err != nil {
		return podStatus{}
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Status podStatus `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return podStatus{}
	}
	for _, item := range list.Items {
		if item.Metadata.Name == name+"-lab" {
			return item.Status
		}
	}
	return podStatus{}
}

// metric returns the value of a series, or 0 if there is none.
func (k *kubelet) metric(ctx context.Context, series string) float64 {
	k.t.Helper()
	text, err := k.get(ctx, "/metrics")
	must(k.t, err)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			must(k.t, err)
			return v
		}
	}
	return 0
}

// cpu returns the CPU time that the kubelet has used.
func (k *kubelet) cpu() time.Duration {
	k.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", k.cmd.Process.Pid))
	must(k.t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, i := range []int{11, 12} {
		n, err := strconv.Atoi(fields[i])
		must(k.t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// rss returns the resident memory of the kubelet in MiB.
func (k *kubelet) rss() float64 {
	k.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
	must(k.t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			must(k.t, err)
			return kib / 1024
		}
	}
	return 0
}

var errorLine = regexp.MustCompile(`^E\d{4} \S+ +\d+ ([a-z_]+\.go):\d+\] "?([^"]*)"?`)

// errors returns the number of errors of each kind in the kubelet's log so far.
func (k *kubelet) errors() map[string]int {
	k.t.Helper()
	f, err := os.Open(k.path("log"))
	must(k.t, err)
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
