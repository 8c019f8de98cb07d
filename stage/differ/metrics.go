package differ

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	queue, quarantined prometheus.Gauge
	unannounced, lost  prometheus.Counter
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		queue:       s.Gauge("pleg_differ_queue_length", "Changed pods that wait for an inspector."),
		quarantined: s.Gauge("pleg_quarantined_pods", "Pods whose last inspection hung; their retries wait."),
		unannounced: s.Counter("pleg_missed_events_total", "Changes that a list of all pods found and no CRI event announced, although the event stream was up since the list before."),
		lost:        s.Counter("pleg_skipped_events_total", "Containers that came and went and that no subscriber learns of, because too many of their pod waited."),
	}
	return m, s.Register()
}

// add adds what a step has counted.
func (m *metrics) add(do *effects) {
	m.unannounced.Add(float64(do.unannounced))
	m.lost.Add(float64(do.lost))
}
