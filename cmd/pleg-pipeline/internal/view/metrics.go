package view

import dto "github.com/prometheus/client_model/go"

// addMetrics adds the figures that only the metrics contain. A metric that is missing counts as 0.
func (f *Figures) addMetrics(families []*dto.MetricFamily) {
	m := make(metrics, len(families))
	for _, family := range families {
		m[family.GetName()] = family
	}
	_, f.Lister.Lists = m.sum("pleg_relist_duration_seconds", "kubelet_pleg_relist_duration_seconds")
	f.Lister.Errors = m.count("pleg_relist_errors_total")
	switch {
	case m.count("pleg_event_stream_up") > 0:
		f.Hinter.Stream = "up"
	case m.count("pleg_event_stream_opened_total", "kubelet_evented_pleg_connection_success_count") > 0:
		f.Hinter.Stream = "down"
	default:
		f.Hinter.Stream = "off"
	}
	f.Hinter.CRIEvents = m.count("pleg_runtime_events_total")
	f.Inspector.InspectionSeconds, f.Inspector.Inspections = m.sum("pleg_inspection_duration_seconds")
	f.Inspector.Errors = m.count("pleg_inspection_errors_total")
	f.Dispatcher.Events = m.count("pleg_events_total")
	f.Dispatcher.Missed = m.count("pleg_discarded_events_total", "kubelet_pleg_discard_events")
	f.Dispatcher.Subscribers = int(m.count("pleg_subscribers"))
}

// metrics are families by their names.
type metrics map[string]*dto.MetricFamily

// sum returns the sum of all series with these names, one of which exists; for histograms, the
// sum and the number of the observations.
func (m metrics) sum(names ...string) (total float64, observations uint64) {
	for _, name := range names {
		for _, series := range m[name].GetMetric() {
			total += series.GetGauge().GetValue() + series.GetCounter().GetValue() + series.GetHistogram().GetSampleSum()
			observations += series.GetHistogram().GetSampleCount()
		}
	}
	return total, observations
}

// count returns the sum of gauges or counters that are whole numbers.
func (m metrics) count(names ...string) uint64 {
	total, _ := m.sum(names...)
	return uint64(max(0, total))
}
