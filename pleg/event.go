package pleg

import "time"

// Values of Event.Reason of a [Gap].
const (
	// HistoryTooShort means that the log no longer contains the next event.
	HistoryTooShort = "HistoryTooShort"
	// OtherEpoch means that SubscribeOptions.After is the position of another pipeline.
	OtherEpoch = "OtherEpoch"
	// Stopped means that the pipeline ended before the subscriber got everything. No replay
	// follows: the Gap is the last event.
	Stopped = "Stopped"
)

// Event is one step in the life of a pod. Its JSON form is one of the
// program's outputs.
type Event struct {
	// Seq is the number of the event in its pipeline; the first event is 1. Events that a
	// subscriber filtered out or missed leave holes. A replayed event keeps its number.
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
	// ExitCode is set on a ContainerDied of a container, and on a ContainerCorrected of an exited one. It is nil if the
	// container was gone before its exit code could be asked for, and on all other events.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason is the runtime's reason for the exit, set where ExitCode is. On a Gap it is
	// [HistoryTooShort], [OtherEpoch] or [Stopped].
	Reason string `json:"reason,omitempty"`
	// Image and StartedAt are set on each event of a container except a ContainerRemoved, if the
	// status contains them. FinishedAt is set where ExitCode is. The times are the runtime's.
	Image      string    `json:"image,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Missed counts, on a Gap, the published events that the subscriber does not get: of all types
	// and pods, whatever its filter. It is 0 if the number is not known.
	Missed uint64 `json:"missed,omitempty"`
	// Replayed is true if the event describes a state that was there before the
	// subscription or when the pipeline began, not something that has just happened.
	Replayed bool `json:"replayed,omitempty"`
	// Epoch names the pipeline that published the event. Seq means something only
	// together with Epoch; see [Event.Position].
	Epoch string `json:"epoch,omitempty"`
	// ObservedAt is the time before the list that showed the change; for a mark except a
	// [Bookmark], the time of the mark.
	ObservedAt time.Time `json:"observedAt,omitzero"`
	// Status is the pod's newest good status at the delivery of the event, and at least as new as
	// the event. It is nil for a mark, and unless SubscribeOptions.Statuses is set. Once the pod
	// is gone, it contains only the UID.
	Status *PodStatus `json:"-"`
}
