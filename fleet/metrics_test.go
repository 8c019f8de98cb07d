package fleet_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMetricsAreDocumented(t *testing.T) {
	pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	kit.Must(t, err)
	registry := prometheus.NewPedanticRegistry()
	if _, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: &nats.Conn{}, Source: pipe, Cluster: "c", Node: "n", Registerer: registry,
	}); err != nil {
		t.Fatal(err)
	}
	kit.CheckDocumented(t, registry, "../docs/metrics.md", "pleg_fleet_")
}
