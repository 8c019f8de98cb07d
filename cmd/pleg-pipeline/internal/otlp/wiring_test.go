package otlp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// resources notes the resource of the records that a receiver gets.
type resources struct {
	*receiver
	last string
	of   instrumentation.Scope
}

func (r *resources) Export(ctx context.Context, records []sdklog.Record) error {
	r.last, r.of = records[0].Resource().Encoded(attribute.DefaultEncoder()), records[0].InstrumentationScope()
	return r.receiver.Export(ctx, records)
}

// Each option acts: a receiver refuses the first requests of an exporter, and gets the events of its source.
func TestOptionsAct(t *testing.T) {
	t.Setenv("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", "1") // has no effect
	t.Setenv("OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1")
	var log kit.Log
	got, registry := &resources{receiver: new(receiver)}, prometheus.NewPedanticRegistry()
	type row struct {
		set     func(*otlp.ExporterOptions)
		require func(*testing.T)
	}
	events := func(t *testing.T) {
		if name, schema := got.of.Name, got.of.SchemaURL; name != "github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp" || schema != "https://opentelemetry.io/schemas/1.37.0" {
			t.Errorf("the records are of %q with the schema %q", name, schema)
		}
		if len(got.got()) == 0 {
			t.Error("the client has sent no event of the source")
		}
		for _, r := range got.got() {
			if r.Name == "pleg.container.started" && (r.Attributes["k8s.pod.uid"] != "pod-uid" || r.Attributes["container.id"] == nil) {
				t.Errorf("attributes %v, want all", r.Attributes)
			}
		}
	}
	rows := map[string]row{
		"Client": {func(*otlp.ExporterOptions) {}, events}, // there is no exporter without these two
		"Source": {func(*otlp.ExporterOptions) {}, events},
		"Resource": {func(o *otlp.ExporterOptions) {
			o.Resource = resource.NewSchemaless(attribute.String("k8s.node.name", "n7"))
		}, func(t *testing.T) {
			if got.last != "k8s.node.name=n7" {
				t.Errorf("the resource is %q", got.last)
			}
		}},
		"Logger": {func(o *otlp.ExporterOptions) { o.Logger = log.Logger() }, func(t *testing.T) {
			if log.Count("cannot export events") == 0 { // again if the number of records differs
				t.Errorf("the log is %q", log.String())
			}
			log.RequireLines(t, 1, `level=INFO msg="exporting again" stage=otlp`)
		}},
		"Registerer": {func(o *otlp.ExporterOptions) { o.Registerer = kit.Kept{Registerer: registry} }, func(t *testing.T) { kit.RequireMetric(t, registry, 2, "pleg_otlp_retries_total") }},
	}
	kit.RequireRows(t, otlp.ExporterOptions{}, rows)
	for name, row := range rows {
		kit.Bubble(t, name, func(t *testing.T) {
			got.receiver = new(receiver)
			got.set(func(request int) answer {
				if request < 3 {
					return unavailable
				}
				return accepts
			})
			runtime := plegtest.New()
			runtime.Set("pod-uid", "c=running")
			pipe, err := pipeline.New(pipeline.Options{Runtime: runtime})
			kit.Must(t, err)
			kit.Run(t, pipe.Run)
			o := otlp.ExporterOptions{Client: got, Source: pipe}
			row.set(&o)
			e, err := otlp.NewExporter(o)
			kit.Must(t, err)
			began, stop := time.Now(), kit.Run(t, e.Run)
			time.Sleep(time.Minute)
			synctest.Wait()
			kit.Must(t, stop())
			row.require(t)
			if last, err := e.Status(); err != nil || !last.After(began) {
				t.Errorf("the receiver accepted something %v after the beginning, %v, want the last time", last.Sub(began), err)
			}
		})
	}
}
