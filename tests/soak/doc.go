// Package soak runs the program for a long time beside a container runtime that keeps
// changing, and checks that its events stay correct and its resources stay bounded.
//
// A [Node] is the runtime: it changes its pods, breaks now and then, and knows the
// truth. Two agents, which are processes of the program, follow it: one by polling, one
// by CRI events. Each has four subscribers on its socket: one for all events, one that
// rarely reads, one that disconnects and comes back, and one with filters.
//
// From time to time the node rests. Then the cache of each agent, and the state that each
// subscriber rebuilt from its events, must equal the truth, and the resources of the
// agents are measured. Every event is checked when it comes; see [kit.StreamCheck].
//
// At the end a line is fitted to the second half of the measurements. The soak fails if
// there was a problem, or if a slope exceeds its bound by more than two standard errors.
package soak
