package inspector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	inFlight  prometheus.Gauge
	hung      prometheus.Gauge
	abandoned prometheus.Gauge
	duration  prometheus.Histogram
	errors    prometheus.Counter
}

func newMetrics(reg instrument.Registry, age func() float64) (*metrics, error) {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_inspections_in_flight",
			Help: "Pods being inspected.",
		}),
		hung: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_hung_inspections",
			Help: "Inspections in flight that count as hung: overtaken, and older than HungAfter.",
		}),
		abandoned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_abandoned_inspections",
			Help: "Calls that keep running although they were cancelled; they take no inspector's place.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pleg_inspection_duration_seconds",
			Help:    "Duration of the inspection of one pod, failed inspections included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_inspection_errors_total",
			Help: "Inspections that failed and are retried.",
		}),
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_inspection_oldest_seconds",
		Help: "Age in seconds of the oldest inspection in flight, 0 if there is none.",
	}, age)
	return m, reg.Register(m.inFlight, m.hung, m.abandoned, m.duration, m.errors, oldest)
}

// publish sets the gauges and returns the number of inspections that take a place.
func (m *metrics) publish(s *flights, now time.Time) (placed int) {
	hung := 0
	for _, f := range s.all {
		if f.abandoned {
			continue
		}
		placed++
		if f.hung(now, s.hungAfter) {
			hung++
		}
	}
	m.inFlight.Set(float64(placed))
	m.hung.Set(float64(hung))
	m.abandoned.Set(float64(len(s.all) - placed))
	return placed
}
