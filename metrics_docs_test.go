package pipeline_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// described notes what is registered, as name{labels}, in order.
type described struct {
	prometheus.Registerer
	names []string
}

var descriptor = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}$`)

func (d *described) Register(c prometheus.Collector) error {
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

// registered returns the names of all metrics there are.
func registered(t *testing.T, kubelet bool) []string {
	t.Helper()
	d := &described{}
	p, err := pipeline.New(pipeline.Options{Runtime: newNode(), Registerer: d, KubeletMetricNames: kubelet})
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.New("unix:///nowhere", cri.Options{Registerer: d, KubeletMetricNames: kubelet})
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	if _, err := server.New(p, server.Options{Registerer: d}); err != nil {
		t.Fatal(err)
	}
	return d.names
}

var documentedRow = regexp.MustCompile("(?m)^\\| `(pleg_[^`]+)` \\| (?:`(kubelet_[^`]+)`)?")

func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string) // to the kubelet's name
	for _, row := range documentedRow.FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	kubelets := registered(t, true)
	for n, name := range registered(t, false) {
		kubelet, ok := documented[name]
		if !ok {
			t.Errorf("docs/metrics.md does not have %s", name)
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
		t.Errorf("docs/metrics.md has what nobody registers: %s", strings.Join(slices.Sorted(maps.Keys(documented)), ", "))
	}
}
