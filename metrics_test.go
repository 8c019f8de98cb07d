package pipeline_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline"
)

// kubeletNames are the metrics that the kubelet (v1.36) has too, by our names.
var kubeletNames = map[string]string{
	"pleg_relist_duration_seconds": "kubelet_pleg_relist_duration_seconds",
	"pleg_relist_interval_seconds": "kubelet_pleg_relist_interval_seconds",
	"pleg_last_seen_seconds":       "kubelet_pleg_last_seen_seconds",
	"pleg_discarded_events_total":  "kubelet_pleg_discard_events",
	"pleg_running_pods":            "kubelet_running_pods",
	"pleg_running_containers":      "kubelet_running_containers",
}

// gatherNames returns the names of the metrics of a pipeline that has run.
func gatherNames(t *testing.T, reg *prometheus.Registry, kubelet bool) map[string]bool {
	t.Helper()
	r := newRig(t, pipeline.Options{Registerer: reg, KubeletMetricNames: kubelet})
	r.subscribe(t, 0)
	r.node.set("a", "c=running /s=running")
	r.run(t)
	r.relist()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	names := make(map[string]bool)
	for _, f := range families {
		names[f.GetName()] = true
	}
	return names
}

func TestMetricNamesAreWellFormed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		names := gatherNames(t, reg, false)
		for ours := range kubeletNames {
			if !names[ours] {
				t.Errorf("no metric %s", ours)
			}
		}
		for name := range names {
			if !strings.HasPrefix(name, "pleg_") {
				t.Errorf("metric %s is not of the project's names", name)
			}
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil {
			t.Fatalf("lint: %v", err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

func TestKubeletMetricNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := gatherNames(t, prometheus.NewPedanticRegistry(), true)
		for ours, kubelets := range kubeletNames {
			if names[ours] || !names[kubelets] {
				t.Errorf("%s is there: %v, %s: %v, want only the kubelet's name", ours, names[ours], kubelets, names[kubelets])
			}
		}
	})
}

func TestOneRegistererForTwoPipelinesIsAnError(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for n, want := range []string{"", "does another pipeline use this registerer?"} {
		_, err := pipeline.New(pipeline.Options{Runtime: newNode(), Registerer: reg})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("New %d = %v, want %q", n, err, want)
		}
	}
}
