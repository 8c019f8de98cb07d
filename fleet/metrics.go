package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	published prometheus.Counter
	retries   prometheus.Counter
	cut       prometheus.Counter
	lag       prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer, lastAck func() time.Time) (m *metrics, unregister func(), err error) {
	s := instrument.Registry{Registerer: registerer}.NewSet()
	m = &metrics{
		published: s.Counter("pleg_fleet_published_events_total", "Events that the NATS server has acknowledged."),
		retries:   s.Counter("pleg_fleet_retries_total", "Times that publishing began again after an error."),
		cut:       s.Counter("pleg_fleet_cut_total", "Events and states that were too large for a message and were published in part."),
		lag: s.Histogram("pleg_fleet_lag_seconds", "Time from the observation of an event to the acknowledgement of the NATS server.",
			instrument.LagBuckets),
	}
	s.GaugeFunc("pleg_fleet_last_ack_age_seconds", "Time since the NATS server last acknowledged a message or a renewal, or since the start.",
		func() float64 { return time.Since(lastAck()).Seconds() })
	return m, s.Unregister, s.Register()
}
