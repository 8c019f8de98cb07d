package cri

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

// operationTypes are the kubelet's names for the methods this client calls.
var operationTypes = map[string]string{
	runtimeapi.RuntimeService_Version_FullMethodName:          "version",
	runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:   "list_podsandbox",
	runtimeapi.RuntimeService_ListContainers_FullMethodName:   "list_containers",
	runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName: "podsandbox_status",
	runtimeapi.RuntimeService_ContainerStatus_FullMethodName:  "container_status",
}

type metrics struct {
	total, errors *prometheus.CounterVec // by operation type
	duration      *prometheus.HistogramVec
	malformed     prometheus.Counter
	unregister    func()
	// failed is set if the last call failed.
	failed atomic.Bool
}

// newMetrics registers the metrics. Names and help of the first three are those of the kubelet v1.37
// (pkg/kubelet/metrics), except for the prefix.
func newMetrics(reg instrument.Registry) (*metrics, error) {
	const label = "operation_type"
	s := reg.NewSet()
	m := &metrics{unregister: s.Unregister}
	m.total = s.CounterVec(reg.Name("pleg_runtime_operations_total", "kubelet_runtime_operations_total"),
		"Cumulative number of runtime operations by operation type.", label)
	m.errors = s.CounterVec(reg.Name("pleg_runtime_operations_errors_total", "kubelet_runtime_operations_errors_total"),
		"Cumulative number of runtime operation errors by operation type.", label)
	m.duration = s.HistogramVec(reg.Name("pleg_runtime_operations_duration_seconds", "kubelet_runtime_operations_duration_seconds"),
		"Duration in seconds of runtime operations. Broken down by operation type.", label, instrument.CallBuckets)
	m.malformed = s.Counter("pleg_malformed_items_total",
		"Malformed items in lists, which are completed from elsewhere or skipped, and events with text that is not UTF-8. The log has the reason.")
	for _, name := range operationTypes {
		m.total.WithLabelValues(name)
		m.errors.WithLabelValues(name)
		m.duration.WithLabelValues(name)
	}
	return m, s.Register()
}

// intercept measures each call of a known method.
func (m *metrics) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name, ok := operationTypes[method]
	if !ok {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	start := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	m.duration.WithLabelValues(name).Observe(time.Since(start).Seconds())
	m.total.WithLabelValues(name).Inc()
	if m.failed.Store(err != nil); err != nil {
		m.errors.WithLabelValues(name).Inc()
	}
	return err
}
