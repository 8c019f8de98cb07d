package verdict

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var since = prometheus.NewDesc("pleg_verdict_since_seconds",
	"Unix time since when the verdict is what its labels say, or the time of the scrape if all is well.", []string{"level", "cause"}, nil)

// Metric is the verdict on a pipeline with this status, for Prometheus: one series, with the
// severity and the cause of the first finding.
type Metric func() pleg.Status

// Describe implements [prometheus.Collector].
func (m Metric) Describe(to chan<- *prometheus.Desc) { to <- since }

// Collect implements [prometheus.Collector].
func (m Metric) Collect(to chan<- prometheus.Metric) {
	s := m()
	v := Of(s)
	first := Finding{Cause: "none"}
	if len(v.Findings) > 0 {
		first = v.Findings[0]
	}
	if first.Since.IsZero() {
		first.Since = s.At
	}
	seconds := float64(first.Since.UnixNano()) / float64(time.Second)
	to <- prometheus.MustNewConstMetric(since, prometheus.GaugeValue, seconds, string(v.Severity), string(first.Cause))
}
