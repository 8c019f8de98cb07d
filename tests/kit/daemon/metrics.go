package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// Metrics reads the metrics of a daemon that serves HTTP: the sum of each over its labels, and as
// name{value} the sum with that value of a label; of summaries and histograms only name_count.
func (d *Daemon) Metrics(ctx context.Context) (map[string]float64, error) {
	page, err := process.Get(ctx, d.http, d.URL+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", d.Name, err)
	}
	values := make(map[string]float64)
	for name, family := range families {
		for _, m := range family.GetMetric() {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			values[name] += value
			values[name+"_count"] += float64(m.GetSummary().GetSampleCount() + m.GetHistogram().GetSampleCount())
			for _, label := range m.GetLabel() {
				values[name+"{"+label.GetValue()+"}"] += value
			}
		}
	}
	return values, nil
}
