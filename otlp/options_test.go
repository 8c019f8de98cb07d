package otlp_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(*otlp.ExporterOptions){
		"ExporterOptions.Conn":   func(o *otlp.ExporterOptions) { o.Conn = nil },
		"ExporterOptions.Source": func(o *otlp.ExporterOptions) { o.Source = nil },
		"ExporterOptions.Node":   func(o *otlp.ExporterOptions) { o.Node = "" },
	} {
		o := otlp.ExporterOptions{Conn: new(grpc.ClientConn), Source: &script{}, Node: "n"}
		change(&o)
		if _, err := otlp.NewExporter(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if _, err := otlp.NewExporter(otlp.ExporterOptions{Conn: new(grpc.ClientConn), Source: &script{}, Node: "n", Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	kit.CheckDocumented(t, registry, "../docs/metrics.md", "pleg_otlp_")
}

// The table of the OTLP specification. RESOURCE_EXHAUSTED with RetryInfo is in
// TestOutageLosesNothing.
func TestWhichCodesAreRetried(t *testing.T) {
	retried := map[codes.Code]bool{
		codes.Canceled: true, codes.DeadlineExceeded: true, codes.Aborted: true,
		codes.OutOfRange: true, codes.Unavailable: true, codes.DataLoss: true,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := !otlp.IsPermanent(status.Error(code, "")); got != retried[code] {
			t.Errorf("%v is retried: %t, want %t", code, got, retried[code])
		}
	}
}
