package differ

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	queue, quarantined, runningPods prometheus.Gauge
	stale, unannounced, lost        prometheus.Counter
	containers                      [pleg.StateExited + 1]prometheus.Gauge
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		queue:       s.Gauge("pleg_differ_queue_length", "Changed pods that wait for an inspector."),
		quarantined: s.Gauge("pleg_quarantined_pods", "Pods whose last inspection hung; their retries wait."),
		stale:       s.Counter("pleg_stale_observations_total", "Answers about a pod that did not count because they had begun before a newer one arrived."),
		unannounced: s.Counter("pleg_missed_events_total", "Changes that a list of all pods found and no CRI event announced, although the event stream was up since the list before."),
		lost:        s.Counter("pleg_skipped_events_total", "Containers that came and went and that no subscriber learns of, because too many of their pod waited."),
		runningPods: s.Gauge(reg.Name("pleg_running_pods", "kubelet_running_pods"), "Pods with a running sandbox in the last listing."),
	}
	containers := s.GaugeVec(reg.Name("pleg_running_containers", "kubelet_running_containers"),
		"Containers in the last listing, by state; sandboxes do not count.", "container_state")
	for state := range m.containers {
		m.containers[state] = containers.WithLabelValues(pleg.State(state).String())
	}
	return m, s.Register()
}

// add adds what a step has counted.
func (m *metrics) add(do *effects) {
	m.stale.Add(float64(do.stale))
	m.unannounced.Add(float64(do.unannounced))
	m.lost.Add(float64(do.lost))
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
