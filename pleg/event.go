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
	// ContainerChanged means that a container is in the created or unknown state.
	// The pipeline inspects the pod and does not deliver the event.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync asks a subscriber to read the pod's status again: the pod was
	// reinspected without a visible change, or events of it were discarded because
	// the subscriber's buffer was full.
	PodSync EventType = "PodSync"

	// NetworkSetupCompleted means that a sandbox is ready and has an address.
	// Only subscribers that ask for network events get it.
	NetworkSetupCompleted EventType = "NetworkSetupCompleted"
	// NetworkFailed means that a sandbox is not ready and was never seen with an
	// address. Only subscribers that ask for network events get it.
	NetworkFailed EventType = "NetworkFailed"
)

// Marks are about the subscription, not about a pod. Their sequence number is that
// of the last event published before them.
const (
	// Synced ends the replay, or the part of the history that the subscriber
	// resumed from: the subscriber has the initial state of every pod, except of
	// those whose inspection fails or hangs. Live events follow.
	Synced EventType = "Synced"
	// Gap means that a subscription could not be resumed, missed too much, or ends; Reason
	// says why. A replay follows, unless the pipeline has stopped. Missed is the number of
	// events of all pods that are not delivered; 0 if it is not known.
	Gap EventType = "Gap"
	// Bookmark means that the subscriber has everything of its pods that was listed up
	// to ObservedAt. While an inspection of one of them fails or hangs, ObservedAt
	// stands still, but the position moves on.
	Bookmark EventType = "Bookmark"
)

// Reasons of a [Gap].
const (
	// HistoryTooShort means that the history no longer has the next event.
	HistoryTooShort = "HistoryTooShort"
	// OtherEpoch means that the sequence number belongs to another pipeline.
	OtherEpoch = "OtherEpoch"
	// Stopped means that the pipeline ended while events waited for the subscriber.
	// No replay follows: the Gap is the last event.
	Stopped = "Stopped"
)

// Event is one step in the life of a pod. Its JSON form is one of the
// program's outputs.
type Event struct {
	// Seq numbers the events of one pipeline; it only grows. Filtered and missed
	// events leave holes.
	Seq          uint64    `json:"seq"`
	Type         EventType `json:"type"`
	PodUID       PodUID    `json:"podUID,omitempty"`
	PodName      string    `json:"podName,omitempty"`
	PodNamespace string    `json:"podNamespace,omitempty"`
	// ContainerID is the container or sandbox that the event is about; empty for a
	// PodSync.
	ContainerID ContainerID `json:"containerID,omitempty"`
	// ContainerName is the container's name in the pod; for a sandbox, the
	// pod's name.
	ContainerName string `json:"containerName,omitempty"`
	// Attempt counts the containers of this name, or the sandboxes, that the pod had
	// before.
	Attempt uint32 `json:"attempt"`
	// Sandbox is true if ContainerID names a pod sandbox.
	Sandbox bool `json:"sandbox"`
	// ExitCode and Reason are set on a ContainerDied if the inspection still found
	// the container; otherwise ExitCode is nil.
	ExitCode *int32 `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Image and StartedAt are set on a ContainerStarted and a ContainerDied of a
	// container, FinishedAt on a ContainerDied, as far as the status has them. The times
	// are those of the runtime's clock.
	Image      string    `json:"image,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Missed is the number of discarded events that a PodSync stands for, or that a
	// Gap reports.
	Missed uint64 `json:"missed,omitempty"`
	// Replayed is true if the event describes the present state of a container, not
	// something that has just happened.
	Replayed bool `json:"replayed,omitempty"`
	// Uninspected is true if the inspection of the pod keeps failing and the event
	// has only what the list knows; the cache has the error.
	Uninspected bool `json:"uninspected,omitempty"`
	// Epoch names the pipeline that published the event. Seq means something only
	// together with it; see [Event.Position].
	Epoch string `json:"epoch,omitempty"`
	// ObservedAt is the time before the list that showed the change, or, for a CRI
	// event, a time before its statuses were gathered. When the event is delivered, the
	// cache has a status at least as new.
	ObservedAt time.Time `json:"observedAt,omitzero"`
}
