// Package plegtest has a container runtime in memory, with which an embedder of
// the pipeline tests his own code.
//
// [Runtime] implements [pleg.Runtime], [pleg.PodLister] and [pleg.EventWatcher].
// A test sets its pods, makes calls fail, hang or panic with a [Fault], sends CRI
// events, and reads how often the pipeline called it. [Pod], [Status] and [Words]
// convert between pods, statuses, events and a short notation, so that a test
// says "c1=running /s1=exited" instead of building structures.
//
// Nothing here reads a clock or starts a goroutine of its own, except that
// [Delay] waits: tests that run in a testing/synctest bubble need no real time.
package plegtest
