package differ

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	queue, quarantined, runningPods                            prometheus.Gauge
	duplicates, stale, missed, skippedSteps, skippedContainers prometheus.Counter
	containers                                                 [pleg.StateExited + 1]prometheus.Gauge
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		queue:             s.Gauge("pleg_differ_queue_length", "Changed pods that wait for an inspector."),
		quarantined:       s.Gauge("pleg_quarantined_pods", "Pods whose last inspection hung or failed late; their retries wait."),
		duplicates:        s.Counter("pleg_duplicate_pods_total", "Pods skipped because one listing had their UID twice."),
		stale:             s.Counter("pleg_stale_observations_total", "Observations of one pod that were not used because a newer one had come before."),
		missed:            s.Counter("pleg_missed_events_total", "Changes that a relist found and no CRI event announced, although the event stream was up at the relist before."),
		skippedSteps:      s.Counter("pleg_skipped_events_total", "Events that no subscriber gets, because too many CRI events of their pod waited for its inspection."),
		skippedContainers: s.Counter("pleg_missed_attempts_total", "Containers that were never seen, known from a jump in the attempt number of their successor."),
		runningPods:       s.Gauge(reg.Name("pleg_running_pods", "kubelet_running_pods"), "Pods with a running sandbox in the last listing."),
	}
	containers := s.GaugeVec(reg.Name("pleg_running_containers", "kubelet_running_containers"),
		"Containers in the last listing, by state; sandboxes do not count.", "container_state")
	for state := range m.containers {
		m.containers[state] = containers.WithLabelValues(pleg.State(state).String())
	}
	return m, s.Register()
}

// census counts what one listing has.
type census struct {
	runningPods int
	containers  [pleg.StateExited + 1]int
}

func (c *census) add(pod *pleg.Pod) {
	for _, container := range pod.Containers {
		c.containers[min(container.State, pleg.StateExited)]++
	}
	for _, sandbox := range pod.Sandboxes {
		if sandbox.State == pleg.StateRunning {
			c.runningPods++
			break
		}
	}
}

func (m *metrics) publish(c census) {
	m.runningPods.Set(float64(c.runningPods))
	for state, n := range c.containers {
		m.containers[state].Set(float64(n))
	}
}
