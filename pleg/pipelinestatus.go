package pleg

import "time"

// Status is the work of a pipeline at one time, and the causes of its waits.
type Status struct {
	// At is the time of this status.
	At time.Time
	// Version is the version of the daemon that the client asked; empty for a pipeline of this
	// process, and if the daemon does not report it.
	Version string
	// Endpoint is the address of the runtime, if that is a [Reporter].
	Endpoint string
	// Healthy and Err are the results of the pipeline's method Healthy. If it is healthy,
	// Degraded names the parts that work only by a fallback, or nil; see [Report].
	Healthy  bool
	Err      error
	Degraded error
	Relist   RelistStatus
	// Troubles are the other troubles of the runtime and its node; see [Report].
	Troubles []Trouble
	// Details are for the program of this module. They may change in any version.
	Details any
	// Inspectors is Options.Inspectors, the bound on inspections in flight that do not hang.
	// InFlight is the number of inspections in flight.
	Inspectors, InFlight int
	// InspectionTook is the median duration of the last inspections of different pods that were
	// not cancelled; 0 if only a few ended within a minute.
	InspectionTook time.Duration
	// Waiting is the number of pods whose change has not been inspected successfully yet.
	Waiting int
	// Overdue are the inspections in flight that are older than a second,
	// the oldest first.
	Overdue []Inspection
	// Quarantined are the pods whose last inspection hung or failed late, in the order of their
	// next retry.
	Quarantined []Quarantined
	// Failed are the other pods whose last inspection failed, the longest first.
	Failed []Failed
	// Contradictions are the containers and sandboxes whose lists and statuses differ, the longest
	// first.
	Contradictions []Contradiction
}

// RelistStatus describes the lists of all pods.
type RelistStatus struct {
	// Success is the time at which the newest successful list began; zero before the first. Took is
	// how long that list took, Longest the longest one of the last minute that did not hang.
	Success time.Time
	Took    time.Duration
	Longest time.Duration
	// Started is the time at which the list in progress began; zero if no list is in progress. Call
	// is the call to the runtime that this list waits for; nil if it is not known.
	Started time.Time
	Call    *Call
	// Failures is the number of lists that failed since Success. Failing is the time at which the
	// first of them began, Err is the error of the last, and FailedAfter is how long the last took.
	// All are zero if no list failed.
	Failing     time.Time
	Failures    int
	Err         error
	FailedAfter time.Duration
	// Period is the present time from the end of a list to the start of the next.
	Period time.Duration
	// Pods is the number of pods that are known; 0 before the first successful list.
	Pods int
}

// Inspection is an inspection in flight. It hangs if it is older than a second, and an inspection
// that began later has ended in at most half its age. If no inspection ends, none hangs: the
// runtime is slow.
type Inspection struct {
	UID       PodUID
	Namespace string
	Name      string
	Started   time.Time
	// Hung is true if the inspection hangs.
	Hung bool
	// Call is the oldest call to the runtime that the inspection waits for; nil if it is not known
	// (see [Report]), or if no call has been sent yet.
	Call *Call
}

// Quarantined is a pod whose last inspection hung and was cancelled, or failed after a second or
// more (late). It waits for its next inspection. After a hang the wait doubles each time from
// Options.RelistPeriod, and the timeout of the retry from 10 s. A request for the pod ends the
// wait.
type Quarantined struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is the time at which the first of these inspections in a row began, Hung is their
	// number.
	Since time.Time
	Hung  int
	// NextTry is the time at which the wait ends. The pod is inspected then, as soon as there is a
	// slot, if a relist has shown it since its last inspection; otherwise after the next relist.
	NextTry time.Time
	// Err is the error of the last inspection. Call is the call to the runtime that it waited for;
	// nil if it is not known.
	Err  error
	Call *Call
}

// Failed is a pod whose last inspection failed, and that is not quarantined.
type Failed struct {
	UID       PodUID
	Namespace string
	Name      string
	// Since is the time of the list that showed the change of the pod. Err is the error of the
	// last inspection.
	Since time.Time
	Err   error
}

// Contradiction is a container or sandbox whose state in the runtime's lists and statuses differs,
// in at least two inspections in a row. Its events follow the lists. Its pod is inspected again
// until they agree, after a wait that doubles from Options.RelistPeriod to Options.MaxQuarantine.
type Contradiction struct {
	UID       PodUID
	Namespace string
	Name      string
	// Container is the container or sandbox, ContainerName its name in the list.
	Container     ContainerID
	ContainerName string
	Sandbox       bool
	// Listed is the state in the list, Status the state in the status; Missing is true if the status
	// lacks it.
	Listed, Status State
	Missing        bool
	// Since is the time at which an inspection first found it.
	Since time.Time
}

// Trouble is something wrong with the runtime or its node that the lists and the inspections do not
// show. Its text is a sentence: Subject, What, since when, Detail.
type Trouble struct {
	// Cause is one of the causes of the metric pleg_verdict_since_seconds.
	Cause string
	// Problem is false for a warning.
	Problem bool
	// Since is the time at which it was first seen.
	Since time.Time
	// Subject is in trouble, such as "the runtime"; What is the trouble, such as "is not ready";
	// Detail is why, such as ": cni plugin not initialized".
	Subject, What, Detail string
}

// Call is a call to the runtime that has not returned, or that was cancelled before it returned.
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
