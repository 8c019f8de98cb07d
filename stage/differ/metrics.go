package differ

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	queue       prometheus.Gauge
	quarantined prometheus.Gauge
	duplicates  prometheus.Counter
	stale       prometheus.Counter
	missed      prometheus.Counter
	skipped     prometheus.Counter
	// skippedAttempts counts containers of which only the attempt number is known.
	skippedAttempts prometheus.Counter
	runningPods     prometheus.Gauge
	containers      [pleg.StateExited + 1]prometheus.Gauge
}

func newMetrics(reg instrument.Registry) (*metrics, error) {
	containers := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: reg.Name("pleg_running_containers", "kubelet_running_containers"),
		Help: "Containers in the last listing, by state; sandboxes do not count.",
	}, []string{"container_state"})
	m := &metrics{
		queue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_differ_queue_length",
			Help: "Changed pods that wait for an inspector.",
		}),
		quarantined: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pleg_quarantined_pods",
			Help: "Pods whose last inspection hung or failed late; their retries wait.",
		}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_duplicate_pods_total",
			Help: "Pods skipped because one listing had their UID twice.",
		}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_stale_observations_total",
			Help: "Observations of one pod that were not used because a newer one had come before.",
		}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_missed_events_total",
			Help: "Changes that a relist found and no CRI event announced, although the event stream was up at the relist before.",
		}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_skipped_events_total",
			Help: "Events that no subscriber gets, because too many CRI events of their pod waited for its inspection.",
		}),
		skippedAttempts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pleg_missed_attempts_total",
			Help: "Containers that were never seen, known from a jump in the attempt number of their successor.",
		}),
		runningPods: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: reg.Name("pleg_running_pods", "kubelet_running_pods"),
			Help: "Pods with a running sandbox in the last listing.",
		}),
	}
	for state := range m.containers {
		m.containers[state] = containers.WithLabelValues(pleg.State(state).String())
	}
	return m, reg.Register(m.queue, m.quarantined, m.duplicates, m.stale, m.missed, m.skipped, m.skippedAttempts, m.runningPods, containers)
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
