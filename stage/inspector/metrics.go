package inspector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	inFlight, hung prometheus.Gauge
	duration       prometheus.Histogram
	errors         prometheus.Counter
}

func newMetrics(reg instrument.Registry, age func() float64) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		inFlight: s.Gauge("pleg_inspections_in_flight", "Pods being inspected."),
		hung:     s.Gauge("pleg_hung_inspections", "Inspections in flight that count as hung: overtaken, and older than a second."),
		duration: s.Histogram("pleg_inspection_duration_seconds", "Duration of the inspection of one pod, failed inspections included.",
			instrument.CallBuckets),
		errors: s.Counter("pleg_inspection_errors_total", "Inspections that failed and are retried."),
	}
	s.GaugeFunc("pleg_inspection_oldest_seconds", "Age in seconds of the oldest inspection in flight, 0 if none is older than a second.", age)
	return m, s.Register()
}
