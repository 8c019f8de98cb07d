// Package soak runs the program for a long time beside a container runtime that
// never rests, and looks whether it stays right and stays small.
//
// A [Node] is the runtime: it changes its pods, breaks now and then, and knows
// the truth. Two agents, which are the program as users run it, watch it: one by
// polling, one by the runtime's events. Each has four subscribers on its socket:
// one that wants everything, one that reads only now and then, one that leaves
// and comes back, and one with filters.
//
// Every so often the node rests. Then the cache of each agent, and what each
// subscriber believes, must equal the truth, and the resources of the agents are
// measured. In between each subscriber checks each event: no container goes back
// in its life, none dies or is removed twice, and sequence numbers only grow.
//
// At the end a line is fitted to the second half of the measurements. The soak
// fails if anything was not as it should be, or if a slope is above its bound by
// more than two standard errors.
package soak
