package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	published prometheus.Counter
	refused   prometheus.Counter
	retries   prometheus.Counter
	gaps      prometheus.Counter
	lag       prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer, lastAck func() time.Time) (*metrics, error) {
	m := &metrics{
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_fleet_published_events_total", Help: "Events that the NATS server has acknowledged.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_fleet_refused_messages_total", Help: "Messages and states that the NATS server refused, for example because another agent publishes as this node.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_fleet_retries_total", Help: "Times that publishing began again after an error.",
		}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_fleet_published_gaps_total", Help: "Gaps published because events could not be resumed: one after each start, more if the history was too short.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pleg_fleet_lag_seconds", Help: "Time from the observation of an event to the acknowledgement of the NATS server.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600},
		}),
	}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_fleet_last_ack_age_seconds", Help: "Time since the NATS server last acknowledged a message or a renewal, or since the start.",
	}, func() float64 { return time.Since(lastAck()).Seconds() })
	registry := instrument.Registry{Registerer: registerer}
	return m, registry.Register(m.published, m.refused, m.retries, m.gaps, m.lag, age)
}
