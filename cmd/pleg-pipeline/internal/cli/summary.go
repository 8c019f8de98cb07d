package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// summary is the last line that "run" prints.
type summary struct {
	cause    error
	duration time.Duration
	metrics  prometheus.Gatherer
	printed  map[pleg.EventType]int // nil if unknown
}

// String returns the line. A metric that is missing counts as 0.
func (s summary) String() string {
	relists, discarded := s.gather()
	return fmt.Sprintf("%v after %v: %d relists, %s%.0f discarded",
		s.cause, s.duration.Round(100*time.Millisecond), relists, s.events(), discarded)
}

// events returns "" if the number of printed events is unknown.
func (s summary) events() string {
	if s.printed == nil {
		return ""
	}
	total := 0
	var byType []string
	for _, t := range slices.Sorted(maps.Keys(s.printed)) {
		total += s.printed[t]
		byType = append(byType, fmt.Sprintf("%s %d", t, s.printed[t]))
	}
	if total == 0 {
		return "0 events, "
	}
	return fmt.Sprintf("%d events (%s), ", total, strings.Join(byType, ", "))
}

// gather reads two metrics, under their own or the kubelet's names.
func (s summary) gather() (relists uint64, discarded float64) {
	families, _ := s.metrics.Gather()
	for _, f := range families {
		switch f.GetName() {
		case "pleg_relist_duration_seconds", "kubelet_pleg_relist_duration_seconds":
			relists = only(f).GetHistogram().GetSampleCount()
		case "pleg_discarded_events_total", "kubelet_pleg_discard_events":
			discarded = only(f).GetCounter().GetValue()
		}
	}
	return relists, discarded
}

// only returns the one series of a metric without labels.
func only(f *dto.MetricFamily) *dto.Metric { return f.GetMetric()[0] }
