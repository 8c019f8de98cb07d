package fleet_test

import (
	"strings"
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
	o := fleet.PublisherOptions{Conn: &nats.Conn{}, Source: pipe, Cluster: "c", Node: "n", Registerer: registry}
	_, err = fleet.NewPublisher(o)
	kit.Must(t, err)
	kit.CheckDocumented(t, registry, "../docs/metrics.md", "pleg_fleet_")
	if _, err := fleet.NewPublisher(o); err == nil || !strings.HasPrefix(err.Error(), "new publisher: register metric pleg_fleet_published_events_total: ") {
		t.Errorf("a second publisher with these metrics: %v", err)
	}
}
