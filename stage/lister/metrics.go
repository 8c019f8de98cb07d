package lister

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type metrics struct {
	duration prometheus.Histogram
	interval prometheus.Histogram
	errors   prometheus.Counter

	lastSeen, runningPods prometheus.Gauge
	containers            [pleg.StateExited + 1]prometheus.Gauge
}

func newMetrics(reg instrument.Registry, l *Lister) (*metrics, error) {
	s := reg.NewSet()
	m := &metrics{
		duration: s.Histogram(reg.Name("pleg_relist_duration_seconds", "kubelet_pleg_relist_duration_seconds"),
			"Time from asking the runtime for all pods to its answer or error.", instrument.CallBuckets),
		interval: s.Histogram(reg.Name("pleg_relist_interval_seconds", "kubelet_pleg_relist_interval_seconds"),
			"Time from the start of the last successful relist to the start of this one.", instrument.CallBuckets),
		lastSeen: s.Gauge(reg.Name("pleg_last_seen_seconds", "kubelet_pleg_last_seen_seconds"),
			"Unix time at which the last successful relist began."),
		runningPods: s.Gauge(reg.Name("pleg_running_pods", "kubelet_running_pods"), "Pods with a running sandbox in the last listing."),
		errors:      s.Counter("pleg_relist_errors_total", "Relists that the runtime did not answer."),
	}
	containers := s.GaugeVec(reg.Name("pleg_running_containers", "kubelet_running_containers"),
		"Containers in the last listing, by state; sandboxes do not count.", "container_state")
	for state := range m.containers {
		m.containers[state] = containers.WithLabelValues(pleg.State(state).String())
	}
	s.GaugeFunc("pleg_relist_running_seconds", "Age in seconds of the list in progress, 0 between two lists.", l.age)
	s.GaugeFunc("pleg_event_stream_up", "1 while the stream of container events is up, 0 otherwise.",
		func() float64 { return instrument.Bool(l.last.Load().up) })
	return m, s.Register()
}

// listed counts the pods and containers of a list.
func (m *metrics) listed(pods []*pleg.Pod) {
	runningPods := 0
	var containers [pleg.StateExited + 1]int
	for _, pod := range pods {
		for _, c := range pod.Containers {
			containers[min(c.State, pleg.StateExited)]++
		}
		if slices.ContainsFunc(pod.Sandboxes, func(s *pleg.Container) bool { return s.State == pleg.StateRunning }) {
			runningPods++
		}
	}
	m.runningPods.Set(float64(runningPods))
	for state, n := range containers {
		m.containers[state].Set(float64(n))
	}
}
