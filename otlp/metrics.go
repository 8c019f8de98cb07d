package otlp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	exported prometheus.Counter
	refused  prometheus.Counter
	dropped  prometheus.Counter
	retries  prometheus.Counter
	gaps     prometheus.Counter
	lag      prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer, ackAge, waitingAge func() float64) (*metrics, error) {
	m := &metrics{
		exported: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_otlp_exported_records_total", Help: "Log records that the OTLP receiver has accepted.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_otlp_refused_records_total", Help: "Log records that the OTLP receiver refused in a request that it otherwise accepted. They are not sent again.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_otlp_dropped_records_total", Help: "Log records in requests that failed with an error that must not be retried.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_otlp_retries_total", Help: "Times that exporting began again after an error.",
		}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_otlp_exported_gaps_total", Help: "Gaps that were exported or tried, because events could not be resumed: one after each start, more if the history was too short.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pleg_otlp_lag_seconds", Help: "Time from the observation of an event to the answer of the OTLP receiver.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600},
		}),
	}
	lastAck := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_otlp_last_ack_age_seconds", Help: "Time since the OTLP receiver last accepted a request, or since the start. It grows while there are no events.",
	}, ackAge)
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pleg_otlp_waiting_age_seconds", Help: "Age of the oldest event that waits for the OTLP receiver; 0 if none does.",
	}, waitingAge)
	registry := instrument.Registry{Registerer: registerer}
	return m, registry.Register(m.exported, m.refused, m.dropped, m.retries, m.gaps, m.lag, lastAck, waiting)
}
