// Package otlp exports the events of a node as OpenTelemetry logs: over OTLP, with gRPC or
// HTTP, to an OpenTelemetry Collector or to a backend that speaks it.
//
//	client, err := otlp.NewClient(ctx, "https://collector.example:4317")
//	...
//	e, err := otlp.NewExporter(otlp.ExporterOptions{Client: client, Source: pipe})
//	...
//	return e.Run(ctx) // beside pipe.Run
//
// Each event is one log record with an identity, so that a receiver can remove
// duplicates. docs/otlp.md has every attribute and what is promised.
//
// Every event is sent at least once and in order, one request at a time. The exporter stores
// nothing: after an error it continues after the last acknowledged event with what the history of
// the pipeline still has. If that is too short, or the pipeline is new, it exports a Gap and then
// the present state. What the receiver rejects is counted and not sent again, as the OTLP
// specification demands.
package otlp
