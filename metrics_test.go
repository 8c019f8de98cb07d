package pipeline_test

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// kubeletNames maps our names of metrics to those of the kubelet (v1.37).
var kubeletNames = map[string]string{
	"pleg_relist_duration_seconds": "kubelet_pleg_relist_duration_seconds",
	"pleg_relist_interval_seconds": "kubelet_pleg_relist_interval_seconds",
	"pleg_last_seen_seconds":       "kubelet_pleg_last_seen_seconds",
	"pleg_discarded_events_total":  "kubelet_pleg_discard_events",
	"pleg_running_pods":            "kubelet_running_pods",
	"pleg_running_containers":      "kubelet_running_containers",
}

func TestMetricNames(t *testing.T) {
	for _, kubelet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := kit.New(t, pipeline.Options{KubeletMetricNames: kubelet})
			r.Events(t, 0)
			r.Runtime.Set("a", "c=running /s=running")
			r.Start(t)
			kit.Relist(1)
			families, err := r.Metrics.Gather()
			if err != nil {
				t.Fatalf("gather: %v", err)
			}
			names := make(map[string]bool)
			for _, f := range families {
				names[f.GetName()] = true
				if !kubelet && !strings.HasPrefix(f.GetName(), "pleg_") {
					t.Errorf("metric %s does not begin with pleg_", f.GetName())
				}
			}
			for ours, kubelets := range kubeletNames {
				if names[ours] == kubelet || names[kubelets] != kubelet {
					t.Errorf("with the kubelet's names %t: has %s: %t, has %s: %t", kubelet, ours, names[ours], kubelets, names[kubelets])
				}
			}
			if problems, err := testutil.GatherAndLint(r.Metrics); err != nil || !kubelet && len(problems) > 0 {
				t.Errorf("lint: %v, %v", problems, err)
			}
		})
	}
}

func TestSharedRegistererIsAnError(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for n, want := range []string{"", "does another pipeline use this registerer?"} {
		_, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Registerer: reg})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("New %d = %v, want %q", n, err, want)
		}
	}
}

// New that fails leaves no metric behind, so that a second try can succeed, here with
// other names.
func TestFailedNewRegistersNothing(t *testing.T) {
	for _, name := range []string{"pleg_relist_duration_seconds", "pleg_discarded_events_total"} {
		reg := prometheus.NewPedanticRegistry()
		taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Taken."})
		reg.MustRegister(taken)
		o := pipeline.Options{Runtime: plegtest.New(), Registerer: reg}
		if _, err := pipeline.New(o); err == nil {
			t.Errorf("New = nil although %s is taken", name)
		}
		if families, err := reg.Gather(); err != nil || len(families) != 1 {
			t.Errorf("after New has failed: %d metrics, %v, want only %s", len(families), err, name)
		}
		o.KubeletMetricNames = true
		if _, err := pipeline.New(o); err != nil {
			t.Errorf("the second New = %v", err)
		}
	}
}

// A program that restarts its pipeline, its server and its client of the runtime has one
// registry for the process.
func TestNextPipelineUsesTheRegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 2 {
		p, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Registerer: prometheus.WrapRegistererWithPrefix("agent_", reg)})
		kit.Must(t, err)
		_, err = pipeline.New(pipeline.Options{Runtime: plegtest.New(), Registerer: prometheus.WrapRegistererWithPrefix("agent_", reg)})
		if err == nil || strings.Count(err.Error(), "agent_pleg_") != 1 {
			t.Errorf("New beside a pipeline = %v, want an error that names one metric, once", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		kit.Must(t, p.Run(ctx))
		if families, err := reg.Gather(); err != nil || len(families) != 0 {
			t.Errorf("after Run has returned: %d metrics, %v", len(families), err)
		}
	}
}

// recorder records the registered metrics as name{labels}, in order.
type recorder struct {
	prometheus.Registerer
	names []string
}

// Unregister implements [prometheus.Registerer].
func (*recorder) Unregister(prometheus.Collector) bool { return true }

var descriptor = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}$`)

func (d *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		m := descriptor.FindStringSubmatch(desc.String())
		name := m[1]
		if m[2] != "" {
			name += "{" + m[2] + "}"
		}
		d.names = append(d.names, name)
	}
	return nil
}

// registered returns the names of all metrics.
func registered(t *testing.T, kubelet bool) []string {
	t.Helper()
	d := &recorder{}
	p, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Events: pipeline.EventsAuto, Registerer: d, KubeletMetricNames: kubelet})
	kit.Must(t, err)
	client, err := cri.New("unix:///nowhere", cri.Options{Registerer: d, KubeletMetricNames: kubelet})
	kit.Must(t, err)
	_ = client.Close()
	if _, err := server.New(p, server.Options{Registerer: d}); err != nil {
		t.Fatal(err)
	}
	return d.names
}

var documentedRow = regexp.MustCompile("(?m)^\\| `(pleg_[^`]+)` \\| (?:`(kubelet_[^`]+)`)?")

func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/metrics.md")
	kit.Must(t, err)
	documented := make(map[string]string) // our name to the kubelet's name
	for _, row := range documentedRow.FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(row[1], "pleg_fleet_") && !strings.HasPrefix(row[1], "pleg_otlp_") { // fleet and otlp test their own
			documented[row[1]] = row[2]
		}
	}
	kubelets := registered(t, true)
	for n, name := range registered(t, false) {
		kubelet, ok := documented[name]
		if !ok {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
		want := name
		if kubelet != "" {
			want = kubelet
		}
		if kubelets[n] != want {
			t.Errorf("%s is %s under the kubelet's names, docs/metrics.md says %q", name, kubelets[n], kubelet)
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("docs/metrics.md has metrics that do not exist: %s", strings.Join(slices.Sorted(maps.Keys(documented)), ", "))
	}
}
