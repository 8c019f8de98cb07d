package fleet_test

import (
	"errors"
	"slices"
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
	families, err := registry.Gather()
	kit.Must(t, err)
	var help []string
	for _, f := range families {
		help = append(help, f.GetHelp())
	}
	if want := []string{
		"Events and states that were too large for a message and were published in part.",
		"Time for which nothing could be published; 0 while the stream acknowledges what is sent.",
		"Time from the observation of an event to the acknowledgement of the NATS server.",
		"Events that the NATS server has acknowledged.",
		"Times that publishing began again after an error.",
	}; !slices.Equal(help, want) {
		t.Errorf("the metrics are explained as %q, want %q", help, want)
	}
	var buckets []float64
	for _, b := range families[2].GetMetric()[0].GetHistogram().GetBucket() {
		buckets = append(buckets, b.GetUpperBound())
	}
	if want := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600}; !slices.Equal(buckets, want) {
		t.Errorf("the buckets of the lag are %v, want %v", buckets, want)
	}
	if _, err := fleet.NewPublisher(o); !errors.As(err, new(prometheus.AlreadyRegisteredError)) || err.Error() != "new publisher: register metric pleg_fleet_published_events_total: duplicate metrics collector registration attempted (does another pipeline use this registerer? wrap it with prometheus.WrapRegistererWith)" {
		t.Errorf("a second publisher with these metrics: %v", err)
	}
}
