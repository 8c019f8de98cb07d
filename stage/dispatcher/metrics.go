package dispatcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	events      map[pleg.EventType]prometheus.Counter
	discarded   prometheus.Counter
	repaired    prometheus.Counter
	subscribers prometheus.Gauge
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pleg_events_total",
		Help: "Events published, each counted once whatever the number of subscribers.",
	}, []string{"type"})
	m := &metrics{
		events: make(map[pleg.EventType]prometheus.Counter),
		discarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: reg.Name("pleg_discarded_events_total", "kubelet_pleg_discard_events"),
			Help: "Events that a subscriber missed because its buffer was full.",
		}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_repaired_pods_total",
			Help: "PodSync events delivered in place of events that a subscriber missed.",
		}),
		subscribers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_subscribers",
			Help: "Subscribers at present.",
		}),
	}
	for _, t := range []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved, pleg.PodSync} {
		m.events[t] = events.WithLabelValues(string(t))
	}
	return m, reg.Register(events, m.discarded, m.repaired, m.subscribers)
}

func (m *metrics) count(t pleg.EventType) { m.events[t].Inc() }
