package hinter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	duration prometheus.Histogram
	errors   prometheus.Counter
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		duration: s.Histogram(reg.Name("pleg_pod_relist_duration_seconds", "kubelet_pleg_pod_relist_duration_seconds"),
			"Time from asking the runtime for one pod to its answer or error.", instrument.CallBuckets),
		errors: s.Counter("pleg_pod_relist_errors_total", "Relists of one pod that the runtime did not answer."),
	}
	return m, s.Register()
}
