package lister

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	duration prometheus.Histogram
	interval prometheus.Histogram
	lastSeen prometheus.Gauge
	errors   prometheus.Counter
}

func newMetrics(reg instrument.Registry, l *Lister) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		duration: s.Histogram(reg.Name("pleg_relist_duration_seconds", "kubelet_pleg_relist_duration_seconds"),
			"Time from asking the runtime for all pods to its answer or error.", prometheus.DefBuckets),
		interval: s.Histogram(reg.Name("pleg_relist_interval_seconds", "kubelet_pleg_relist_interval_seconds"),
			"Time from the start of the last successful relist to the start of this one.", prometheus.DefBuckets),
		lastSeen: s.Gauge(reg.Name("pleg_last_seen_seconds", "kubelet_pleg_last_seen_seconds"),
			"Unix time at which the last successful relist began."),
		errors: s.Counter("pleg_relist_errors_total", "Relists that the runtime did not answer."),
	}
	s.GaugeFunc("pleg_relist_running_seconds", "Age in seconds of the list in progress, 0 between two lists.", l.age)
	s.GaugeFunc("pleg_event_stream_up", "1 while the stream of container events is up, 0 otherwise.",
		func() float64 { return instrument.Bool(l.up.Load()) })
	return m, s.Register()
}
