package cri_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

func TestNewRejects(t *testing.T) {
	for _, tt := range []struct {
		name, endpoint string
		opts           cri.Options
		words          string
	}{
		{"nothing", "", cri.Options{}, `endpoint "" is not a unix socket: want unix:///path/to/socket or /path/to/socket`},
		{"a relative path", "run/cri.sock", cri.Options{}, "is not a unix socket"},
		{"a relative unix url", "unix://run/cri.sock", cri.Options{}, "is not a unix socket"},
		{"a unix url without slashes", "unix:/run/cri.sock", cri.Options{}, "is not a unix socket"},
		{"tcp", "tcp://127.0.0.1:1234", cri.Options{}, "is not a unix socket"},
		{"a Windows pipe", "npipe:////./pipe/containerd", cri.Options{}, "is not a unix socket"},
		{"a path too long for the kernel", "/" + strings.Repeat("x", 107), cri.Options{}, "at most 107 bytes, this has 108"},
		{"ListTimeout", "/s", cri.Options{ListTimeout: -time.Second}, "cri: Options.ListTimeout must be positive, got -1s"},
		{"StatusTimeout", "/s", cri.Options{StatusTimeout: -1}, "cri: Options.StatusTimeout must be positive, got -1ns"},
		{"ConnectTimeout", "/s", cri.Options{ConnectTimeout: -1}, "cri: Options.ConnectTimeout must be positive, got -1ns"},
		{"MaxRecvBytes", "/s", cri.Options{MaxRecvBytes: -3}, "cri: Options.MaxRecvBytes must be positive, got -3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, err := cri.New(tt.endpoint, tt.opts)
			if client != nil || err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got %v, %v; want an error with %q", client, err, tt.words)
			}
		})
	}
}

func TestNewOnARegistererInUse(t *testing.T) {
	registry := prometheus.NewRegistry()
	newClient(t, "/s", cri.Options{Registerer: registry})
	if _, err := cri.New("/s", cri.Options{Registerer: registry}); err == nil {
		t.Error("two clients on one registerer: no error")
	}
	other := prometheus.NewRegistry()
	for _, runtime := range []string{"a", "b"} {
		newClient(t, "/s", cri.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"runtime": runtime}, other)})
	}
}

const operationsText = `
# HELP pleg_runtime_operations_total Cumulative number of runtime operations by operation type.
# TYPE pleg_runtime_operations_total counter
pleg_runtime_operations_total{operation_type="container_status"} 2
pleg_runtime_operations_total{operation_type="list_containers"} 1
pleg_runtime_operations_total{operation_type="list_podsandbox"} 1
pleg_runtime_operations_total{operation_type="podsandbox_status"} 1
pleg_runtime_operations_total{operation_type="stream_containers"} 1
pleg_runtime_operations_total{operation_type="stream_podsandboxes"} 1
pleg_runtime_operations_total{operation_type="version"} 1
# HELP pleg_runtime_operations_errors_total Cumulative number of runtime operation errors by operation type.
# TYPE pleg_runtime_operations_errors_total counter
pleg_runtime_operations_errors_total{operation_type="container_status"} 1
pleg_runtime_operations_errors_total{operation_type="list_containers"} 0
pleg_runtime_operations_errors_total{operation_type="list_podsandbox"} 0
pleg_runtime_operations_errors_total{operation_type="podsandbox_status"} 0
pleg_runtime_operations_errors_total{operation_type="stream_containers"} 1
pleg_runtime_operations_errors_total{operation_type="stream_podsandboxes"} 1
pleg_runtime_operations_errors_total{operation_type="version"} 0
`

func TestMetrics(t *testing.T) {
	for _, tt := range []struct {
		name, prefix string
		kubelet      bool
	}{
		{"our names", "pleg", false},
		{"the kubelet's names", "kubelet", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewPedanticRegistry()
				client := connect(t, metricsRuntime(), cri.Options{Registerer: registry, KubeletMetricNames: tt.kubelet})
				useEveryCall(t, client)

				want := strings.ReplaceAll(operationsText, "pleg_", tt.prefix+"_")
				total, errors := tt.prefix+"_runtime_operations_total", tt.prefix+"_runtime_operations_errors_total"
				if err := testutil.GatherAndCompare(registry, strings.NewReader(want), total, errors); err != nil {
					t.Error(err)
				}
				checkDuration(t, registry, tt.prefix+"_runtime_operations_duration_seconds")
				if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
					t.Errorf("lint: %v, %v", problems, err)
				}
			})
		})
	}
}

// metricsRuntime takes 3 s for a sandbox status and knows the container "c".
func metricsRuntime() *fakeRuntime {
	fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", 0, 1)}}
	known := &statuses{
		sandboxes:  map[string]*runtimeapi.PodSandboxStatusResponse{"s": sandboxStatus("s", true, 1)},
		containers: map[string]*runtimeapi.ContainerStatusResponse{"c": {Status: &runtimeapi.ContainerStatus{Id: "c"}}},
	}
	fake.containerStatus = known.runtime().containerStatus
	fake.sandboxStatus = func(ctx context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
		time.Sleep(3 * time.Second)
		return known.runtime().sandboxStatus(ctx, id)
	}
	return fake
}

func useEveryCall(t *testing.T, client *cri.Client) {
	t.Helper()
	_, err := client.Check(t.Context())
	must(t, err)
	listPods(t, client)
	_, err = client.PodStatus(t.Context(), pod([]string{"s"}, []string{"c", "gone"}), nil)
	must(t, err)
}

// checkDuration checks the sandbox status' histogram: 3 s, in the kubelet's
// buckets.
func checkDuration(t *testing.T, registry *prometheus.Registry, name string) {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != name || metric.GetLabel()[0].GetValue() != "podsandbox_status" {
				continue
			}
			h := metric.GetHistogram()
			if h.GetSampleSum() != 3 || h.GetSampleCount() != 1 || len(h.GetBucket()) != 14 ||
				h.GetBucket()[0].GetUpperBound() != .005 || h.GetBucket()[1].GetUpperBound() != .0125 {
				t.Errorf("%s: got %v", name, h)
			}
			return
		}
	}
	t.Errorf("no %s of podsandbox_status", name)
}
