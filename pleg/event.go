package pleg

import "time"

// Reasons of a [Gap].
const (
	// HistoryTooShort means that the log no longer has the next event.
	HistoryTooShort = "HistoryTooShort"
	// OtherEpoch means that the sequence number belongs to another pipeline.
	OtherEpoch = "OtherEpoch"
	// Stopped means that the pipeline ended before the subscriber got everything. No replay
	// follows: the Gap is the last event.
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
	// the container, otherwise ExitCode is nil, and on a ContainerCorrected.
	ExitCode *int32 `json:"exitCode,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Image and StartedAt are set on each event of a container except a ContainerRemoved,
	// FinishedAt also if ExitCode is, as far as the status has them. The runtime's clock
	// made the times.
	Image      string    `json:"image,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Missed is the number of events, of all pods, that a Gap reports.
	Missed uint64 `json:"missed,omitempty"`
	// Replayed is true if the event describes a state that was there before the
	// subscription or when the pipeline began, not something that has just happened.
	Replayed bool `json:"replayed,omitempty"`
	// Epoch names the pipeline that published the event. Seq means something only
	// together with it; see [Event.Position].
	Epoch string `json:"epoch,omitempty"`
	// ObservedAt is the time before the list that showed the change. When the event is delivered, the
	// cache has a status at least as new.
	ObservedAt time.Time `json:"observedAt,omitzero"`
	// Status is the pod's newest good status when the event was delivered, if
	// SubscribeOptions.Statuses is set: at least as new as the event. It
	// has only the UID once the pod is gone, and is nil for a mark.
	Status *PodStatus `json:"-"`
}
