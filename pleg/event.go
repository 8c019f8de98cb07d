package pleg

import "time"

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
	// ContainerChanged means that a container is in a created or unknown state.
	// It makes the pipeline inspect the pod and is not delivered.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync asks a subscriber to look at the pod anew: the pod was
	// reinspected without a visible change, or events of it were discarded
	// because the subscriber's buffer was full.
	PodSync EventType = "PodSync"

	// NetworkSetupCompleted means that a sandbox is ready and has an address.
	// Only subscribers that ask for network events get it.
	NetworkSetupCompleted EventType = "NetworkSetupCompleted"
	// NetworkFailed means that a sandbox stopped being ready, or never was, and
	// was never seen with an address. Only subscribers that ask for network
	// events get it.
	NetworkFailed EventType = "NetworkFailed"
)

// Marks speak of the subscription rather than of a pod. Their sequence number
// is that of the last event published before them.
const (
	// Synced ends what lay before the subscription, its replay or the part of
	// the history it resumed from; what follows happens live.
	Synced EventType = "Synced"
	// Gap says that a subscription could not be resumed, and in Reason why; a
	// replay follows. Missed is the number of events that the history no
	// longer has, of all pods; 0 if it is not known.
	Gap EventType = "Gap"
	// Bookmark says that the subscriber has everything that was listed before
	// ObservedAt.
	Bookmark EventType = "Bookmark"
)

// Reasons of a [Gap].
const (
	// HistoryTooShort means that the history no longer reaches back so far.
	HistoryTooShort = "HistoryTooShort"
	// OtherEpoch means that the sequence number is another process's.
	OtherEpoch = "OtherEpoch"
)

// Event is one step in the life of a pod. Its JSON form is one of the
// program's outputs.
type Event struct {
	// Seq numbers the events of one pipeline; it only grows. A subscriber that
	// discarded or filtered events sees holes.
	Seq          uint64    `json:"seq"`
	Type         EventType `json:"type"`
	PodUID       PodUID    `json:"podUID,omitempty"`
	PodName      string    `json:"podName,omitempty"`
	PodNamespace string    `json:"podNamespace,omitempty"`
	// ContainerID is the container, or the sandbox, that the event is about;
	// empty for a PodSync.
	ContainerID ContainerID `json:"containerID,omitempty"`
	// ContainerName is the container's name in the pod; for a sandbox, the
	// pod's name.
	ContainerName string `json:"containerName,omitempty"`
	// Attempt counts the containers of this name, or the sandboxes, that the
	// pod had before.
	Attempt uint32 `json:"attempt"`
	// Sandbox is true if ContainerID names a pod sandbox.
	Sandbox bool `json:"sandbox"`
	// ExitCode and Reason are set on a ContainerDied whose container the
	// inspection still found; ExitCode is nil otherwise.
	ExitCode *int32 `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Missed is the number of events that a PodSync stands for because this
	// subscriber's buffer was full, or that a Gap reports.
	Missed uint64 `json:"missed,omitempty"`
	// Replayed is true if the event tells of a container as it stands now
	// rather than of something that has just happened.
	Replayed bool `json:"replayed,omitempty"`
	// Uninspected is true if the inspection of the pod keeps failing and the
	// event tells what the list knows; the cache holds the error.
	Uninspected bool `json:"uninspected,omitempty"`
	// Epoch names the pipeline whose sequence numbers these are. Only marks
	// carry it.
	Epoch string `json:"epoch,omitempty"`
	// ObservedAt is the time before the listing that showed the change, or the
	// time of the runtime's event that did. The cache holds a status at least as
	// new once the event is delivered.
	ObservedAt time.Time `json:"observedAt"`
}
