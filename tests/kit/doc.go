// Package kit holds the helpers of the black-box tests: it runs a pipeline on a
// runtime, collects what subscribers get, and compares that with the truth.
//
// [Pipeline] runs on a [plegtest.Runtime], [Simulation] on a simulated CRI
// runtime. [StreamCheck] checks the order of one subscriber's events, [History]
// also that none is missing, and [NodeState] rebuilds from events what runs on a
// node, for a comparison with the [Truth].
//
// Functions that wait are for tests in a testing/synctest bubble.
package kit
