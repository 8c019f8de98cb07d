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
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return m, reg.Register(m.duration, m.interval, m.lastSeen, m.errors,
		gauge("pleg_relist_running_seconds", "Age in seconds of the list in progress, 0 between two lists.", l.age),
		gauge("pleg_event_stream_up", "1 while the stream of container events is up, 0 otherwise.",
			func() float64 { return number(l.trust.now().up) }),
		gauge("pleg_event_stream_doubted", "1 while polling replaces the event stream because the stream missed changes while it was up, 0 otherwise.",
			func() float64 { return number(l.trust.now().isDoubted()) }))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
