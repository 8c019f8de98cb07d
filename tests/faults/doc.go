// Package faults is a test. It runs the pipeline on a simulated runtime that fails
// in every way that package simruntime can draw, and checks that a fault costs
// nothing but time.
//
// In each case:
//
//   - after the faults have ended and the pods rest, the cache equals the runtime;
//   - the events of each container are in order, none is repeated, and the last one
//     agrees with the container; none is missing if the pipeline follows CRI events
//     and the fault does not affect them;
//   - Healthy is false while no list can succeed, and true in the end;
//   - nothing panics and no goroutine leaks.
//
// The pipeline cannot tell two faults from the truth, so less is checked there. A
// list with a wrong id says that containers are gone. A container whose state the
// list does not know may be reported as started once more, as the kubelet does.
package faults
