// Package fleet carries the events of many nodes through NATS JetStream, and keeps the
// present state of every pod there. A [Publisher] runs on each node; [Watch] and [States] read,
// anywhere. docs/fleet.md describes the stream, the bucket and every field in them.
//
// # Concurrency
//
// [Publisher.Run] blocks and owns the state of the publisher. [Watch] works on the
// goroutine that ranges. Nothing on the node waits for the server: while it is away, the
// events stay in the history of the pipeline.
package fleet
