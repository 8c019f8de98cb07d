// Package fleet carries the events of many nodes through NATS JetStream, and keeps the
// present state of every pod there.
//
// An agent on each node publishes:
//
//	conn, err := fleet.Connect("nats://nats.example:4222", logger)
//	...
//	p, err := fleet.NewPublisher(fleet.PublisherOptions{
//		Conn: conn, Source: fleet.From(pipe), Cluster: "prod", Node: nodeName,
//	})
//	...
//	return p.Run(ctx) // beside pipe.Run
//
// Another program watches all nodes, or some:
//
//	for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: "prod", Replay: true}) {
//		if err != nil {
//			return err // no attempt can succeed
//		}
//		fmt.Println(ev.Node, ev.Type, ev.PodNamespace, ev.PodName)
//	}
//
// For each node, the contract is the same as of a subscription on one node: the events of a pod
// arrive in order, none comes twice, and what cannot be delivered is announced by a Gap with the
// name of the node, which the present state of this node follows.
//
// docs/fleet.md describes the stream, the bucket and every field in them.
//
// # Concurrency
//
// [Publisher.Run] blocks and owns the state of the publisher. [Watch] works on the
// goroutine that ranges. Nothing on the node waits for the server: while it is away, the
// events stay in the history of the pipeline.
package fleet
