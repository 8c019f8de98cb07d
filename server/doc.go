// Package server serves a pipeline to other programs on the node: gRPC service
// pleg.v1.PLEG, health and reflection on a unix socket.
//
// # Usage
//
//	s, err := server.New(pipe, server.Options{})
//	...
//	err = s.ListenAndServe(ctx, "/run/pleg-pipeline.sock") // beside pipe.Run
//
// A program with a gRPC server of its own calls [Server.Register] instead.
// Package client is the other end.
//
// # Bounds
//
// Connections, calls of a connection, watchers, their buffers and the size of a
// request are all bounded; what is over a bound is refused with
// RESOURCE_EXHAUSTED and a text that names the bound. Each watcher is a
// subscriber of the pipeline and is read by its own goroutine: one that does
// not read, or is stopped, delays nobody. It keeps its place while it answers
// keepalive pings, and loses its connection if it does not.
//
// # Shutdown
//
// When the context of [Server.Serve] ends, every stream ends with UNAVAILABLE,
// and then the connections do. When the pipeline ends first, its watchers get
// what was published and then UNAVAILABLE.
package server
