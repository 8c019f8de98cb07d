// Package client watches a pipeline in another process on the same node.
//
//	c, err := client.New("/run/pleg-pipeline.sock", client.Options{})
//	...
//	defer c.Close()
//	for ev, err := range c.Watch(ctx, client.WatchOptions{Replay: true}) {
//		if err != nil {
//			return err // no attempt can succeed
//		}
//		...
//	}
//
// [Client.Watch] keeps the contract of a subscription when connections break and the
// server restarts: it reconnects and resumes after its last event. If the server no
// longer has the next events, the watch gets a Gap and a replay of the current state.
// It starts no goroutine.
package client
