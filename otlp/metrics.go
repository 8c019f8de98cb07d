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
	s := instrument.Registry{Registerer: registerer}.NewSet()
	m := &metrics{
		exported: s.Counter("pleg_otlp_exported_records_total", "Log records that the OTLP receiver has accepted."),
		refused:  s.Counter("pleg_otlp_refused_records_total", "Log records that the OTLP receiver refused in a request that it otherwise accepted. They are not sent again."),
		dropped:  s.Counter("pleg_otlp_dropped_records_total", "Log records in requests that failed with an error that must not be retried."),
		retries:  s.Counter("pleg_otlp_retries_total", "Times that exporting began again after an error."),
		gaps:     s.Counter("pleg_otlp_exported_gaps_total", "Gaps that were exported or tried, because events could not be resumed: one after each start, more if the history was too short."),
		lag:      s.Histogram("pleg_otlp_lag_seconds", "Time from the observation of an event to the answer of the OTLP receiver.", instrument.LagBuckets),
	}
	s.GaugeFunc("pleg_otlp_last_ack_age_seconds", "Time since the OTLP receiver last accepted a request, or since the start. It grows while there are no events.", ackAge)
	s.GaugeFunc("pleg_otlp_waiting_age_seconds", "Age of the oldest event that waits for the OTLP receiver; 0 if none does.", waitingAge)
	return m, s.Register()
}
