// Package client follows a pipeline in another process through its socket.
//
//	c, err := client.New("/run/pleg-pipeline.sock", client.Options{})
//	...
//	defer c.Close()
//	for ev, err := range c.Watch(ctx, client.WatchOptions{Replay: true}) {
//		if err != nil {
//			return err // the server will never accept this watch
//		}
//		...
//	}
//
// [Client.Watch] keeps the contract of a subscription across lost connections
// and restarts of the server: it reconnects, resumes behind the last event it
// has, and if the server no longer has what follows, there is a Gap and the
// present state anew. It starts no goroutine.
package client
