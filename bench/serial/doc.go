// Package serial is the kubelet's own pod lifecycle event generator
// (GenericPLEG of Kubernetes v1.36) written anew on the words of package pleg:
// one goroutine that lists every pod, compares, and inspects each changed pod
// one after the other.
//
// It is what the benchmarks compare the pipeline with, and the reference that
// the pipeline's events and cache must equal. It therefore keeps the kubelet's
// weaknesses: a slow inspection delays every pod behind it, and an event that
// finds the channel full is lost.
//
// Four things differ from the kubelet on purpose. Events carry typed fields
// and a number. The known addresses of a pod survive an inspection that failed
// in between. An answer without a status is an error, not a crash. A pod that
// was listed without any container and is gone leaves no record behind.
//
// A panic in the runtime is not contained here, as it is not in the kubelet.
package serial
