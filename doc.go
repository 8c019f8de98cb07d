// Package pipeline generates pod lifecycle events from a container runtime, as the
// kubelet's PLEG does, but as a pipeline of stages joined by channels: many pods are
// inspected at once, any number of subscribers get the events, and neither a hung
// inspection nor a slow subscriber delays anybody else.
//
//	lister --> differ --> inspectors --> dispatcher --> subscribers
//	hinter ----^ ^            |
//	             +--settled---+--> cache
//
// Only lists are data. The lister lists all pods. The hinter lists single pods, for
// [Pipeline.RequestRelist] and, with [Options].Events, for CRI events.
//
// # Usage
//
// Package pleg contains the types, such as Event and PodStatus, and this package runs the stages. [New]
// takes [Options] with a [pleg.Runtime]; package cri is a runtime for every CRI endpoint, package
// plegtest a runtime in memory for tests. [Pipeline.Subscribe] may be called before or during
// [Pipeline.Run], which blocks until its context ends.
//
// # Delivery and ordering
//
// Events of one pod reach every subscriber in the order in which the states were
// seen. Events of different pods are in no order. Whoever receives an event finds in
// the cache a status at least as new as the list behind the event. A container that comes and goes
// between two lists is reported only if CRI events announce it.
//
// While the inspection of a pod fails, its events wait. The pod is inspected again at each relist.
// Once an inspection succeeds, the changes up to then are delivered.
//
// A subscriber is a position in a log of the last events. Nobody waits for a subscriber. If the
// log has moved past its position, it gets a Gap and the present state; see [Subscription].
// Events in flight when the context of Run ends are dropped; the next process lists
// everything again.
//
// # Concurrency
//
// All methods of [Pipeline], [Subscription] and the cache are safe for concurrent
// use. Events, pods and statuses are shared and must not be modified.
package pipeline
