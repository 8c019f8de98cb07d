package fleet_test

import (
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestMetricsAreDocumented(t *testing.T) {
	pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	if _, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: &nats.Conn{}, Source: fleet.FromPipeline(pipe), Cluster: "c", Node: "n", Registerer: registry,
	}); err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(string(page), "| `"+f.GetName()+"` |") {
			t.Errorf("docs/metrics.md lacks %s", f.GetName())
		}
	}
	if documented := strings.Count(string(page), "| `pleg_fleet_"); documented != len(families) {
		t.Errorf("docs/metrics.md has %d metrics of the fleet, want %d", documented, len(families))
	}
}
