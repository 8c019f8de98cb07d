package pleg

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
