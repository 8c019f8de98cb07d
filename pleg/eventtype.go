package pleg

// EventType is the kind of an event. The names are the kubelet's.
type EventType string

const (
	// ContainerStarted means that a container runs, or that a sandbox is ready.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied means that a container has exited, or that a sandbox is no
	// longer ready.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved means that a dead container or sandbox is gone.
	ContainerRemoved EventType = "ContainerRemoved"
	// PodSync means that the pod was reinspected and its list shows no change. Its status may have
	// changed.
	PodSync EventType = "PodSync"

	// ContainerCreated means that a container exists that has not been started. A runtime
	// may start it before the pipeline sees it. Only subscribers that name the type get it.
	ContainerCreated EventType = "ContainerCreated"
	// ContainerCorrected completes an earlier event of a container. Either the earlier status
	// contradicted its list, so that a start or an exit code was missing, or the runtime has changed
	// the exit code or the reason since (containerd may learn of OOMKilled after the end; an inspection
	// of the pod for another reason finds that). Only subscribers that name the type get it.
	ContainerCorrected EventType = "ContainerCorrected"
	// NetworkSetupCompleted means that a sandbox is ready and got an address.
	// Only subscribers that ask for network events or name the type get it.
	NetworkSetupCompleted EventType = "NetworkSetupCompleted"
	// NetworkFailed means that a sandbox is not ready and was never seen with an
	// address. Only subscribers that ask for network events or name the type get it.
	NetworkFailed EventType = "NetworkFailed"
)

// Marks are about the subscription, not about a pod. They carry the sequence number of the last
// event published before them.
const (
	// Synced ends a replay, or the events that a subscriber with After or Since gets first: the
	// subscriber knows the present state of every pod, except of pods whose inspection fails or
	// hangs. Live events follow.
	Synced EventType = "Synced"
	// Gap means that the log had moved past the subscriber, that its position is another
	// pipeline's, or that the pipeline ends; Reason says why. A replay follows, unless the
	// pipeline has stopped. Missed is the number of events of all types and pods that are not
	// delivered; 0 if it is not known.
	Gap EventType = "Gap"
	// Bookmark means that the subscriber knows everything that lists showed of its pods up to
	// ObservedAt. While the inspection of one of these pods fails or hangs, ObservedAt stands
	// still, but the position moves on. Only subscribers with Bookmarks get it.
	Bookmark EventType = "Bookmark"
)
