// Package faults is a test: it runs the pipeline on a simulated runtime that
// fails in every way that package schedule knows, and demands that nothing but
// time is lost by it.
//
// What is demanded in each case:
//
//   - once the faults are lifted and the pods rest, the cache has what the
//     runtime has, and nothing else;
//   - the events of each container are in order, none comes twice, and they end
//     where the container has; none is lost if the fault leaves the runtime's own
//     events alone and these are followed;
//   - Healthy says no while no list can succeed, and yes in the end;
//   - nothing panics and no goroutine is left.
//
// Two faults cannot be told from the truth, and there the demand is less: a list
// with an id that nothing has, in place of the right one, says that containers
// are gone; and a container whose state the list does not know may be started
// once more, as the kubelet says it, too.
package faults
