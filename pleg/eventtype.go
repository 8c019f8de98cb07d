package pleg

import (
	"slices"
	"strings"
)

// EventType says what happened. The names are the kubelet's.
type EventType string

const (
	// ContainerStarted means that a container runs, or that a sandbox is ready.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied means that a container has exited, or that a sandbox is no
	// longer ready.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved means that a dead container or sandbox is gone.
	ContainerRemoved EventType = "ContainerRemoved"
	// PodSync means that the pod was reinspected without a visible change: its status may
	// have others.
	PodSync EventType = "PodSync"

	// ContainerCreated means that a container exists that has not been started. A runtime
	// may start it before the pipeline sees it. Only subscribers that name the type get it.
	ContainerCreated EventType = "ContainerCreated"
	// ContainerCorrected means that the exit code or the reason of a container is another one
	// than was known: containerd may learn of OOMKilled after the end. It is found when the pod
	// is inspected again for another reason. Only subscribers that name the type get it.
	ContainerCorrected EventType = "ContainerCorrected"
	// NetworkSetupCompleted means that a sandbox is ready and has an address.
	// Only subscribers that ask for network events or name the type get it.
	NetworkSetupCompleted EventType = "NetworkSetupCompleted"
	// NetworkFailed means that a sandbox is not ready and was never seen with an
	// address. Only subscribers that ask for network events or name the type get it.
	NetworkFailed EventType = "NetworkFailed"
)

// Marks are about the subscription, not about a pod. Their sequence number is that
// of the last event published before them.
const (
	// Synced ends the replay, or the part of the history that the subscriber
	// resumed from: the subscriber has the initial state of every pod, except of
	// those whose inspection fails or hangs. Live events follow.
	Synced EventType = "Synced"
	// Gap means that the log had moved past the subscriber, that its position is another
	// pipeline's, or that the pipeline ends; Reason says why. A replay follows, unless the
	// pipeline has stopped. Missed is the number of events of all pods that are not
	// delivered; 0 if it is not known.
	Gap EventType = "Gap"
	// Bookmark means that the subscriber has everything of its pods that was listed up
	// to ObservedAt. While an inspection of one of them fails or hangs, ObservedAt
	// stands still, but the position moves on.
	Bookmark EventType = "Bookmark"
)

// Class says which subscribers get the events of a type.
type Class uint8

const (
	// ClassNormal is of events that every subscriber gets, unless it filters them out.
	ClassNormal Class = iota
	// ClassOnRequest is of events that only subscribers get that ask for them.
	ClassOnRequest
	// ClassMark is of events about the subscription. No filter applies to them.
	ClassMark
)

// Severity says how much an event stands out among others.
type Severity uint8

const (
	// SeverityRoutine is of events that need no attention.
	SeverityRoutine Severity = iota
	// SeverityGood is of events that show that something works.
	SeverityGood
	// SeverityNotice is of events that are worth a look.
	SeverityNotice
	// SeverityBad is of events that show that something failed or is missing.
	SeverityBad
)

// String returns the severity in lower case.
func (s Severity) String() string {
	return [...]string{SeverityRoutine: "routine", SeverityGood: "good", SeverityNotice: "notice", SeverityBad: "bad"}[s]
}

// EventTypeInfo is what all outputs of the project say about a type of events.
type EventTypeInfo struct {
	Type EventType
	// Number is the number in pleg.v1.EventType; 0 for a type that this version does not know.
	Number int32
	// Name is the end of the names in OpenTelemetry logs and CloudEvents.
	Name string
	// Verb continues a sentence that begins with the container or the pod.
	Verb  string
	Class Class
	// Severity is what most events of the type have; see also [Event.Severity].
	Severity Severity
}

// eventTypes has every type that subscribers may get.
var eventTypes = []EventTypeInfo{
	{ContainerStarted, 1, "container.started", "started", ClassNormal, SeverityGood},
	{ContainerDied, 2, "container.died", "died", ClassNormal, SeverityNotice},
	{ContainerRemoved, 3, "container.removed", "was removed", ClassNormal, SeverityRoutine},
	{PodSync, 4, "pod.sync", "was inspected again", ClassNormal, SeverityNotice},
	{NetworkSetupCompleted, 5, "network.setup_completed", "has an address", ClassOnRequest, SeverityGood},
	{NetworkFailed, 6, "network.failed", "never had an address", ClassOnRequest, SeverityBad},
	{ContainerCreated, 7, "container.created", "was created", ClassOnRequest, SeverityRoutine},
	{ContainerCorrected, 8, "container.corrected", "ended otherwise than reported", ClassOnRequest, SeverityNotice},
	{Synced, 16, "synced", "", ClassMark, SeverityRoutine},
	{Gap, 17, "gap", "", ClassMark, SeverityBad},
	{Bookmark, 18, "bookmark", "", ClassMark, SeverityRoutine},
}

// EventTypes returns the types of these classes, or all if there are none, in the order of
// their numbers.
func EventTypes(classes ...Class) []EventType {
	var types []EventType
	for _, info := range eventTypes {
		if len(classes) == 0 || slices.Contains(classes, info.Class) {
			types = append(types, info.Type)
		}
	}
	return types
}

// Info returns what is said about a type. For one that this version does not know,
// everything follows from its text.
func (t EventType) Info() EventTypeInfo {
	for i := range eventTypes {
		if eventTypes[i].Type == t {
			return eventTypes[i]
		}
	}
	return EventTypeInfo{Type: t, Name: strings.ToLower(string(t)), Verb: string(t), Severity: SeverityNotice}
}

// Severity returns how much the event stands out. A container that died is bad if its exit
// code is known and not 0.
func (e Event) Severity() Severity {
	if e.Type == ContainerDied && e.ExitCode != nil && *e.ExitCode != 0 {
		return SeverityBad
	}
	return e.Type.Info().Severity
}
