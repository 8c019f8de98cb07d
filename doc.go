// Package pipeline generates pod lifecycle events from a container runtime, as
// the kubelet's PLEG does, but as a pipeline of stages joined by channels: many
// pods are inspected at once, any number of subscribers get the events, and
// neither a hung pod nor a slow subscriber holds up anybody else.
//
//	lister --> differ --> inspectors --> dispatcher --> subscribers
//	hinter ----^ ^            |
//	             +--settled---+--> cache
//
// The lister asks for all pods, the hinter for single ones: those that
// [Pipeline.RequestRelist] names and, with [Options].Events, those that the
// runtime tells of.
//
// # Usage
//
// [New] takes [Options] with a [Runtime]; package cri has one for every CRI
// runtime. [Pipeline.Subscribe] may be called before or during [Pipeline.Run],
// which blocks until its context ends.
//
// # Delivery and ordering
//
// The events of one pod reach every subscriber in the order in which the states
// were seen; there is no order between pods. Whoever receives an event finds in
// the [Cache] a status at least as new as the listing behind it. What happened
// to a pod entirely between two listings is not seen, unless the runtime's
// events tell of it.
//
// A pod's events are held back while its inspection fails: it is inspected
// again at each relist, and what changed by then is delivered.
//
// A subscriber whose buffer is full misses events; see [Subscription] for what
// it gets instead. Events under way when Run's context ends are dropped; the
// next process lists everything anew.
//
// # Concurrency
//
// All methods of [Pipeline], [Subscription] and [Cache] are safe for concurrent
// use. Events, pods and statuses are shared and must not be modified.
package pipeline
