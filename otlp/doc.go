// Package otlp exports the events of a node as OpenTelemetry logs: over OTLP, with gRPC or
// HTTP, to an OpenTelemetry Collector or to a backend that speaks it.
//
//	conn, err := otlp.Dial("https://collector.example:4317", otlp.DialOptions{})
//	...
//	e, err := otlp.NewExporter(otlp.ExporterOptions{
//		Conn: conn, Source: otlp.From(pipe), Node: nodeName,
//	})
//	...
//	return e.Run(ctx) // beside pipe.Run
//
// Each event is one log record with an identity, so that a receiver can remove
// duplicates. docs/otlp.md has every attribute and what is promised.
//
// # Delivery
//
// Every event is sent at least once and in order, one request at a time. The exporter
// stores nothing: after an error it continues after the last acknowledged event with what
// the history of the pipeline still has. If that is too short, or the pipeline is a new
// one, it exports a Gap and then the present state.
//
// As the OTLP specification demands, what the receiver rejects is not sent again. It is
// counted, and the sequence numbers of the records show it.
//
// # Concurrency
//
// [Exporter.Run] blocks and owns the state of the exporter. Nothing on the node waits for
// the receiver: while it is away, the events stay in the history of the pipeline.
package otlp
