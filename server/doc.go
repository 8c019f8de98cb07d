// Package server serves a pipeline to other programs on the node: the gRPC services
// pleg.v1.PLEG, health and reflection, on a unix socket.
//
// # Usage
//
//	s, err := server.New(pipe, server.Options{})
//	...
//	err = s.ListenAndServe(ctx, "/run/pleg-pipeline.sock") // beside pipe.Run
//
// A program that has its own gRPC server calls [Server.Register] instead. Package
// client is the client of this service.
//
// # Bounds
//
// The server limits connections, calls per connection, watchers, their buffers and the
// size of a request. Above a limit it returns RESOURCE_EXHAUSTED and names the limit.
// Each watcher is a subscriber of the pipeline with its own goroutine: a client that
// does not read, or is stopped, delays nobody. It stays connected as long as it answers
// keepalive pings.
//
// # Shutdown
//
// When the context of [Server.Serve] ends, every call ends with UNAVAILABLE, and then
// the connections close. If the pipeline ends first, its watchers get the events that
// were published, and then UNAVAILABLE.
package server
