// Package pleg contains the types that all stages share: pods and containers as a
// runtime lists them, the status that an inspection returns, and the events computed
// from both.
//
// A value that has passed from one goroutine to another is read-only. A [Pod], a
// [Container] and a [PodStatus] never change once they are built, so they may be
// kept, compared by pointer and shared without a lock. A method that does not block
// does not wait for the runtime either.
package pleg
