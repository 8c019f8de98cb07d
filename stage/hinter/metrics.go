package hinter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	duration                                       prometheus.Histogram
	errors, requests, events, incomplete, overflow prometheus.Counter
	opened, breaks                                 prometheus.Counter
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		duration: s.Histogram(reg.Name("pleg_pod_relist_duration_seconds", "kubelet_pleg_pod_relist_duration_seconds"),
			"Time from asking the runtime for one pod to its answer or error.", prometheus.DefBuckets),
		errors:     s.Counter("pleg_pod_relist_errors_total", "Relists of one pod that the runtime did not answer."),
		requests:   s.Counter("pleg_relist_requests_total", "Requests for a relist of one pod, after merging those that wait."),
		events:     s.Counter("pleg_runtime_events_total", "Container events received from the runtime."),
		incomplete: s.Counter("pleg_incomplete_runtime_events_total", "Container events without a pod's whole state; the pod is relisted instead."),
		overflow:   s.Counter("pleg_overflowed_hints_total", "Observations replaced by a relist of the pod because too many waited."),
		opened: s.Counter(reg.Name("pleg_event_stream_opened_total", "kubelet_evented_pleg_connection_success_count"),
			"Times the event stream was opened."),
		breaks: s.Counter(reg.Name("pleg_event_stream_breaks_total", "kubelet_evented_pleg_connection_error_count"),
			"Times the event stream broke or could not be opened."),
	}
	return m, s.Register()
}
