package main

import (
	"slices"
	"strings"
	"testing"
)

// Every comparison names a scenario and a metric that exist.
func TestComparisonsAreMeasured(t *testing.T) {
	chosen := compared()
	for _, c := range comparisons {
		i := slices.IndexFunc(chosen, func(s Scenario) bool { return s.Name == c.scenario })
		if i < 0 {
			t.Errorf("%s: no scenario %s", c.what, c.scenario)
			continue
		}
		for _, candidate := range c.candidates {
			if !slices.Contains(chosen[i].Candidates, candidate) {
				t.Errorf("%s does not measure %s", c.scenario, candidate)
			}
		}
		if !slices.ContainsFunc(metrics, func(m Metric) bool { return m.Key == c.metric }) {
			t.Errorf("%s: no metric %s", c.what, c.metric)
		}
	}
}

func TestComparisonTable(t *testing.T) {
	o := &Outcome{Name: burst110}
	o.row(kubelet).add(Metrics{"last": 3000, "calls": 3, "waiting": 1, "server": 200})
	o.row(dropIn).add(Metrics{"last": 300})
	r := &Results{Scenarios: []*Outcome{o}}
	want := "| 110 pods change at once: last event (ms) | 3000 | 300 | 0.1 |  | `" + burst110 + "` |\n"
	if got := comparisonTable(r); !strings.Contains(got, want) {
		t.Errorf("table lacks %q:\n%s", want, got)
	}
	want = "| any number of calls at once | 3 a pod, 1 at once, 200 ms |  |  |\n"
	if got := loadTable(r); !strings.Contains(got, want) {
		t.Errorf("table lacks %q:\n%s", want, got)
	}
}
