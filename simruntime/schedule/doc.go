// Package schedule says what happens to a simulated runtime: which pods it has
// at first, what changes at what time, and which calls are spoiled in what way.
// A schedule is drawn from a seed and kept as a small JSON file, so that a bug
// report can bring along what led to the bug.
//
//	s, err := schedule.Draw(ctx, schedule.Options{Seed: 7, Faults: faults})
//	...
//	err = s.Encode(file) // and Decode reads it
//	...
//	rt, err := s.Runtime(simruntime.Options{})
//	...
//	played, err := s.Play(ctx, rt, schedule.PlayOptions{})
//
// # What is the same each time
//
// The pods, their UIDs and names, the ids of the containers, the sequence of the
// steps, and which calls a fault hits, by their number: the third ListContainers,
// or the third ContainerStatus about a pod. A fault that has no times of its own
// is counted from the first call on.
//
// # What is not
//
// Steps happen at their times, calls arrive when the client makes them: which
// step comes before which call depends on the machine. So does the order of
// calls that are under way together, which call is the first one after the From
// of a fault and the last one before its Until, and what a latency profile with
// a tail draws for each call. On the fake clock of a synctest bubble the times
// are exact, too.
package schedule
