// Package pleg holds the words that all stages share: pods and containers as
// a container runtime lists them, the status an inspection returns, and the
// events computed from both.
//
// Every value that has been handed from one goroutine to another is read-only:
// a [Pod], a [Container] and a [PodStatus] are never changed once built, so
// they may be kept, compared by pointer and shared without a lock.
package pleg
