package pleg

import "time"

// Status is what a pipeline does at one time, and what it waits for.
type Status struct {
	// At is the time of this status.
	At time.Time
	// Endpoint is the address of the runtime; empty if it is not [Addressed].
	Endpoint string
	// Healthy and Err are the results of the pipeline's method Healthy. If it is healthy,
	// Degraded is what works only by a fallback, or nil; see [Degraded].
	Healthy  bool
	Err      error
	Degraded error
	// Since is when the troubles began that have no time of their own.
	Since  Since
	Relist RelistStatus
	// Runtime is the process of the runtime, nil if it is not known. Stuck are the pods whose
	// shim does not run, the longest first. See [ProcessReporter] and [ShimReporter].
	Runtime *Process
	Stuck   []Stuck
	// Inspectors is the bound on inspections in flight that are not hung, InFlight the
	// number of those in flight.
	Inspectors, InFlight int
	// InspectionTook is the median of the last inspections of different pods that ended by
	// themselves; 0 if there were not several in a minute.
	InspectionTook time.Duration
	// Waiting is the number of pods that have changed and were not inspected with
	// success since.
	Waiting int
	// Overdue are the inspections in flight that are older than a second,
	// the oldest first.
	Overdue []Inspection
	// Quarantined are the pods whose last inspection hung, in the order of their
	// next retry.
	Quarantined []Quarantined
	// Failed are the pods whose last inspection failed without hanging, the longest first.
	Failed []Failed
}

// Since is when troubles began; each is zero without the trouble.
type Since struct {
	// Unhealthy is when Healthy became false, Degraded when something began to work only by a
	// fallback, Slow when lists or inspections became slow.
	Unhealthy, Degraded, Slow time.Time
}

// RelistStatus describes the lists of all pods.
type RelistStatus struct {
	// Success is when the newest successful list began; zero before the first. Took
	// is how long it took.
	Success time.Time
	Took    time.Duration
	// Started is when the list in progress began; zero if there is none. Call is
	// what it waits for; nil if that is not known.
	Started time.Time
	Call    *Call
	// Failing is when the first of the failed lists since Success began, Failures
	// is their number, Err is the error of the last, and FailedAfter is how long that took;
	// all zero if none failed.
	Failing     time.Time
	Failures    int
	Err         error
	FailedAfter time.Duration
	// Period is the time from the end of a list to the start of the next, at
	// present. Pods is the number of pods that lists of all or of single pods have shown.
	Period time.Duration
	Pods   int
}

// Inspection is an inspection in flight.
type Inspection struct {
	UID       PodUID
	Namespace string
	Name      string
	Started   time.Time
	// Hung is set once inspections that began later have ended.
	Hung bool
	// Call is the oldest call to the runtime that the inspection waits for; nil if
	// the runtime is no [CallReporter], or if no call has been sent yet.
	Call *Call
}

// Quarantined is a pod whose last inspection hung.
type Quarantined struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is when the first inspection began that hung or failed late; all later ones did
	// too.
	Since time.Time
	// Hung is the number of inspections in a row that hung or failed late.
	Hung int
	// NextTry is when its wait ends. It is inspected at the first relist after that, as
	// soon as there is a place.
	NextTry time.Time
	// Err is the error of the last one, and Call what it waited for; nil if that is not known.
	Err  error
	Call *Call
}

// Failed is a pod whose last inspection failed without hanging.
type Failed struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is the time of the list that showed the change of the pod. Err is the error of the
	// last inspection.
	Since time.Time
	Err   error
}

// Process is a process of the node.
type Process struct {
	PID int
	// Name is the name of its program, such as containerd.
	Name string
	// State is the letter of the kernel, such as T for stopped by a signal and D for waiting in
	// the kernel; empty if the process has ended.
	State string
}

// Stuck is a pod of which the runtime does not learn what happens, because the process that
// watches its containers (containerd's shim, CRI-O's conmon) does not run.
type Stuck struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is when this was first seen.
	Since time.Time
	// Shim is the process that watches; nil if it is not known or has ended.
	Shim *Process
	// Container and ID are the container whose process has ended, although the runtime calls it
	// running; empty if none has.
	Container string
	ID        ContainerID
}

// Call is a call to the runtime that has not returned, or had not when it was cancelled.
type Call struct {
	// Method is the name of the call, such as ContainerStatus.
	Method string
	// PodUID is the pod that the call is about; empty for all pods.
	PodUID PodUID
	// ID and Container are the id and the name of the container that the call is
	// about. For a sandbox, only ID is set; for a list, neither.
	ID        ContainerID
	Container string
	Started   time.Time
}

// String returns the call as people read it, such as "ContainerStatus of nginx".
func (c *Call) String() string {
	if c.Container == "" {
		return c.Method
	}
	return c.Method + " of " + c.Container
}
