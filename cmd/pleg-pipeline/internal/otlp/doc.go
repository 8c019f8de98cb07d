// Package otlp exports the events of a node as OpenTelemetry logs: over OTLP, with gRPC or
// HTTP, to an OpenTelemetry Collector or to a backend that speaks OTLP.
//
//	client, err := otlp.NewClient(ctx, "https://collector.example:4317")
//	...
//	e, err := otlp.NewExporter(otlp.ExporterOptions{Client: client, Source: pipe})
//	...
//	return e.Run(ctx) // beside pipe.Run
//
// Each event is one log record with an identity, so that a receiver can remove
// duplicates. docs/otlp.md lists every attribute and promise.
package otlp
