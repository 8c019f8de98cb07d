package cri_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

func TestNewRejects(t *testing.T) {
	for _, tt := range []struct {
		name, endpoint string
		opts           cri.Options
		words          string
	}{
		{"nothing", "", cri.Options{}, `cri: endpoint "" is not a unix socket: want unix:///path/to/socket or /path/to/socket`},
		{"a relative unix url", "unix://run/cri.sock", cri.Options{}, `cri: endpoint "unix://run/cri.sock" is not a unix socket: want unix:///path/to/socket or /path/to/socket`},
		{"a unix url without slashes", "unix:/run/cri.sock", cri.Options{}, `cri: endpoint "unix:/run/cri.sock" is not a unix socket: want unix:///path/to/socket or /path/to/socket`},
		{"a Windows pipe", "npipe:////./pipe/containerd", cri.Options{}, `cri: endpoint "npipe:////./pipe/containerd" is not a unix socket: want unix:///path/to/socket or /path/to/socket`},
		{"a path too long for the kernel", "/" + strings.Repeat("x", 107), cri.Options{}, fmt.Sprintf("cri: endpoint %q: the path of a unix socket has at most 107 bytes, this has 108", "/"+strings.Repeat("x", 107))},
		{"ListTimeout", "/s", cri.Options{ListTimeout: -time.Second}, "cri: Options.ListTimeout must be positive, got -1s"},
		{"StatusTimeout", "/s", cri.Options{StatusTimeout: -1}, "cri: Options.StatusTimeout must be positive, got -1ns"},
		{"ConnectTimeout", "/s", cri.Options{ConnectTimeout: -1}, "cri: Options.ConnectTimeout must be positive, got -1ns"},
		{"MaxRecvBytes", "/s", cri.Options{MaxRecvBytes: -3}, "cri: Options.MaxRecvBytes must be positive, got -3"},
		{"a bad dial option", "/s", cri.Options{DialOptions: []grpc.DialOption{grpc.WithDefaultServiceConfig("{")}}, "cri: endpoint /s: grpc: the provided default service config is invalid: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			tt.opts.Registerer = registry
			client, err := cri.New(tt.endpoint, tt.opts)
			if exact := !strings.HasSuffix(tt.words, ": "); client != nil || err == nil || !strings.HasPrefix(err.Error(), tt.words) || exact && err.Error() != tt.words {
				t.Errorf("got %v, %v; want the error %s", client, err, tt.words)
			}
			if option := strings.Contains(tt.words, "Options."); errors.Is(err, pleg.ErrInvalidOption) != option {
				t.Errorf("%v: is it ErrInvalidOption? want %t", err, option)
			}
			client, err = cri.New("/a://"+strings.Repeat("x", 102), cri.Options{Registerer: registry}) // as long as allowed
			must(t, err)                                                                               // nothing is left in the registry
			if _, err := cri.New("/s", cri.Options{Registerer: registry}); !errors.As(err, new(prometheus.AlreadyRegisteredError)) || !strings.HasPrefix(err.Error(), "cri: register metric pleg_") {
				t.Errorf("a second client with the registerer: %v", err)
			}
			must(t, client.Close())
			if left, err := registry.Gather(); err != nil || len(left) > 0 {
				t.Errorf("%d metrics are left by a client that is closed, %v", len(left), err)
			}
		})
	}
}

// The duration of a sandbox status is 3 s, in the kubelet's buckets. A container that is
// gone counts as an error.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &rawruntime.Runtime{SandboxStatuses: map[string]*runtimeapi.PodSandboxStatusResponse{"s": sandboxStatus("s", true, 1)}}
		fake.Before = func(_ context.Context, request any) error {
			if _, ok := request.(*runtimeapi.PodSandboxStatusRequest); ok {
				time.Sleep(3 * time.Second)
			}
			return nil
		}
		registry := prometheus.NewPedanticRegistry()
		client := connect(t, fake, cri.Options{Registerer: registry, KubeletMetricNames: true})
		requireSeries := func() []*dto.MetricFamily {
			families, err := registry.Gather()
			must(t, err)
			for _, family := range families {
				if n := len(family.GetMetric()); n != 5 && strings.Contains(family.GetName(), "operations") {
					t.Errorf("%s has %d series, want one for each operation, also without an error or a call", family.GetName(), n)
				}
			}
			return families
		}
		if n := len(requireSeries()); n != 4 {
			t.Errorf("%d metrics before the first call, want 4", n)
		}
		_, err := client.Check(t.Context())
		must(t, err)
		listPods(t, client)
		_, err = client.PodStatus(t.Context(), pod([]string{"s"}, []string{"gone", "too"}), nil)
		must(t, err)
		<-watchEvents(t, client).opened // it asks for the version too
		_, err = runtimeapi.NewRuntimeServiceClient(client.Conn()).Status(t.Context(), &runtimeapi.StatusRequest{})
		must(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := client.Check(ended); err == nil {
			t.Error("a call whose context has ended succeeds")
		}
		var got, helps []string
		for _, family := range requireSeries() {
			helps = append(helps, family.GetName()+" "+family.GetHelp())
			for _, m := range family.GetMetric() {
				if n := m.GetCounter().GetValue(); n > 0 {
					got = append(got, fmt.Sprint(family.GetName(), " ", m.GetLabel()[0].GetValue(), " ", n))
				}
				if h := m.GetHistogram(); h.GetSampleSum() > 0 {
					b := h.GetBucket()
					got = append(got, fmt.Sprint(family.GetName(), " ", m.GetLabel()[0].GetValue(), " ", h.GetSampleSum(), len(b), b[0].GetUpperBound(), b[1].GetUpperBound()))
				}
			}
		}
		want := []string{
			"kubelet_runtime_operations_duration_seconds podsandbox_status 3 5 0.005 0.05",
			"kubelet_runtime_operations_errors_total container_status 2",
			"kubelet_runtime_operations_errors_total version 1",
			"kubelet_runtime_operations_total container_status 2",
			"kubelet_runtime_operations_total list_containers 1",
			"kubelet_runtime_operations_total list_podsandbox 1",
			"kubelet_runtime_operations_total podsandbox_status 1",
			"kubelet_runtime_operations_total version 3",
		}
		if wantHelps := []string{
			"kubelet_runtime_operations_duration_seconds Duration in seconds of runtime operations. Broken down by operation type.",
			"kubelet_runtime_operations_errors_total Cumulative number of runtime operation errors by operation type.",
			"kubelet_runtime_operations_total Cumulative number of runtime operations by operation type.",
			"pleg_malformed_items_total Malformed items in lists, which are completed from elsewhere or skipped, and events with text that is not UTF-8. The log has the reason.",
		}; !slices.Equal(helps, wantHelps) {
			t.Errorf("the metrics are %q, want %q", helps, wantHelps)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
	})
}
