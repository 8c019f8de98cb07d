package lister

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	duration  prometheus.Histogram
	interval  prometheus.Histogram
	lastSeen  prometheus.Gauge
	errors    prometheus.Counter
	malformed prometheus.Counter
}

func newMetrics(reg instrument.Registry, age func() float64) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    reg.Name("pleg_relist_duration_seconds", "kubelet_pleg_relist_duration_seconds"),
			Help:    "Time from asking the runtime for all pods to its answer or error.",
			Buckets: prometheus.DefBuckets,
		}),
		interval: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    reg.Name("pleg_relist_interval_seconds", "kubelet_pleg_relist_interval_seconds"),
			Help:    "Time from the start of the last successful relist to the start of this one.",
			Buckets: prometheus.DefBuckets,
		}),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: reg.Name("pleg_last_seen_seconds", "kubelet_pleg_last_seen_seconds"),
			Help: "Unix time at which the last successful relist began.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_relist_errors_total",
			Help: "Relists that the runtime did not answer.",
		}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_malformed_pods_total",
			Help: "Pods and containers skipped because the runtime returned them without what identifies them.",
		}),
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_relist_running_seconds",
		Help: "Age in seconds of the list that is under way, 0 between two lists.",
	}, age)
	return m, reg.Register(m.duration, m.interval, m.lastSeen, m.errors, m.malformed, running)
}
