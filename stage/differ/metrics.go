package differ

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
)

type metrics struct {
	queue, quarantined           prometheus.Gauge
	foundByAll, foundByOne, lost prometheus.Counter
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	found := s.CounterVec("pleg_changes_total", "Changes of pods, by the list that found them: a list of all pods, or of one pod.", "list")
	m := &metrics{
		queue:       s.Gauge("pleg_differ_queue_length", "Changed pods that wait for an inspector."),
		quarantined: s.Gauge("pleg_quarantined_pods", "Pods whose last inspection hung; their retries wait."),
		foundByAll:  found.WithLabelValues("all"),
		foundByOne:  found.WithLabelValues("pod"),
		lost:        s.Counter("pleg_skipped_events_total", "Containers that came and went unreported, because too many of their pod waited to be reported."),
	}
	return m, s.Register()
}

// add adds the counts of a step.
func (m *metrics) add(do *effects) {
	m.foundByAll.Add(float64(do.foundByAll))
	m.foundByOne.Add(float64(do.foundByOne))
	m.lost.Add(float64(do.lost))
}
