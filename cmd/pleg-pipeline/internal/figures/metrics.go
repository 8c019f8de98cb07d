package figures

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// FromMetrics returns the figures that metrics have. A metric that is missing counts as
// 0.
func FromMetrics(families []*dto.MetricFamily) Figures {
	m := make(metrics, len(families))
	for _, f := range families {
		m[f.GetName()] = f
	}
	lists, listSeconds := m.histogram("pleg_relist_duration_seconds", "kubelet_pleg_relist_duration_seconds")
	podRelists, _ := m.histogram("pleg_pod_relist_duration_seconds", "kubelet_pleg_pod_relist_duration_seconds")
	inspections, inspectionSeconds := m.histogram("pleg_inspection_duration_seconds")
	return Figures{
		Lister: Lister{
			LastList:       unixTime(m.sum("pleg_last_seen_seconds", "kubelet_pleg_last_seen_seconds")),
			RunningSeconds: m.sum("pleg_relist_running_seconds"),
			Lists:          lists, ListSeconds: listSeconds,
			Errors: m.count("pleg_relist_errors_total"),
		},
		Hinter: Hinter{
			StreamUp:      m.sum("pleg_event_stream_up") > 0,
			StreamDoubted: m.sum("pleg_event_stream_doubted") > 0,
			Opened:        m.count("pleg_event_stream_opened_total", "kubelet_evented_pleg_connection_success_count"),
			CRIEvents:     m.count("pleg_runtime_events_total"),
			PodRelists:    podRelists,
		},
		Differ: Differ{
			Queue:       m.number("pleg_differ_queue_length"),
			Quarantined: m.number("pleg_quarantined_pods"),
			RunningPods: m.number("pleg_running_pods", "kubelet_running_pods"),
		},
		Inspector: Inspector{
			InFlight:      m.number("pleg_inspections_in_flight"),
			Width:         m.number("pleg_inspection_width"),
			Hung:          m.number("pleg_hung_inspections"),
			Abandoned:     m.number("pleg_abandoned_inspections"),
			OldestSeconds: m.sum("pleg_inspection_oldest_seconds"),
			Inspections:   inspections, InspectionSeconds: inspectionSeconds,
			Errors: m.count("pleg_inspection_errors_total"),
		},
		Dispatcher: Dispatcher{
			Events:      m.count("pleg_events_total"),
			Discarded:   m.count("pleg_discarded_events_total", "kubelet_pleg_discard_events"),
			Subscribers: m.number("pleg_subscribers"),
		},
	}
}

// metrics are families by their names.
type metrics map[string]*dto.MetricFamily

// sum returns the sum of all series with these names, of which a program has one.
func (m metrics) sum(names ...string) float64 {
	total := 0.0
	for _, name := range names {
		for _, series := range m[name].GetMetric() {
			total += series.GetGauge().GetValue() + series.GetCounter().GetValue()
		}
	}
	return total
}

func (m metrics) count(names ...string) uint64 { return uint64(max(0, m.sum(names...))) }

func (m metrics) number(names ...string) int { return int(m.sum(names...)) }

// histogram returns the number and the sum of the observations.
func (m metrics) histogram(names ...string) (count uint64, sum float64) {
	for _, name := range names {
		for _, series := range m[name].GetMetric() {
			count += series.GetHistogram().GetSampleCount()
			sum += series.GetHistogram().GetSampleSum()
		}
	}
	return count, sum
}

// unixTime returns nil for 0, which means never.
func unixTime(seconds float64) *time.Time {
	if seconds == 0 {
		return nil
	}
	whole, part := math.Modf(seconds)
	t := time.Unix(int64(whole), int64(part*float64(time.Second)))
	return &t
}
