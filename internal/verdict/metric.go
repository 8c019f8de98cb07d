package verdict

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var since = prometheus.NewDesc("pleg_verdict_since_seconds",
	"Unix time since which the verdict has a finding with these labels; the time of the scrape if all is well.", []string{"level", "cause"}, nil)

// Metric is the verdict on a pipeline with this status, for Prometheus: one series for each severity
// and cause, so that a trouble that lasts hides no other from an alert.
type Metric func() pleg.Status

// Describe implements [prometheus.Collector].
func (m Metric) Describe(to chan<- *prometheus.Desc) { to <- since }

// Collect implements [prometheus.Collector].
func (m Metric) Collect(to chan<- prometheus.Metric) {
	s := m()
	began := make(map[[2]string]time.Time) // of the earliest finding with the severity and cause
	for _, f := range Of(s).Findings {
		labels := [2]string{string(f.Severity), string(f.Cause)}
		if at, ok := began[labels]; !ok || f.Since.Before(at) {
			began[labels] = f.Since
		}
	}
	if len(began) == 0 {
		began[[2]string{string(OK), "none"}] = s.At
	}
	for labels, at := range began {
		if at.IsZero() {
			at = s.At
		}
		to <- prometheus.MustNewConstMetric(since, prometheus.GaugeValue, float64(at.UnixNano())/float64(time.Second), labels[:]...)
	}
}
