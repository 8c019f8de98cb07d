// Package serial has the algorithm of the kubelet's pod lifecycle event generator
// (GenericPLEG of Kubernetes v1.36) on the types of package pleg: one goroutine
// lists all pods, compares, and inspects one changed pod after the other.
//
// The benchmarks compare the pipeline with it, and tests require that the pipeline
// has the same events and cache. It therefore keeps the kubelet's weaknesses: a
// slow inspection delays every pod behind it, and an event that does not fit into
// the channel is discarded.
//
// Four differences from the kubelet are intended. Events have typed fields and a
// number. The known addresses of a pod survive a failed inspection. An answer
// without a status is an error, not a crash. A removed pod that never had a
// container leaves no record.
//
// As in the kubelet, a panic in the runtime is not caught.
package serial
