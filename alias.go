package pipeline

import (
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

// What most embedders name, so that they import one package; a Runtime of one's
// own takes package pleg as well.
type (
	// Runtime is what the pipeline needs of a container runtime.
	Runtime = pleg.Runtime
	// PodLister is a Runtime that can list one pod.
	PodLister = pleg.PodLister
	// EventWatcher is a Runtime with a stream of container events.
	EventWatcher = pleg.EventWatcher
	// Degraded is a Runtime that can tell that its lists work in a roundabout way.
	Degraded = pleg.Degraded
	// Pod is a pod as the runtime listed it.
	Pod = pleg.Pod
	// PodUID identifies a pod.
	PodUID = pleg.PodUID
	// PodStatus is what an inspection of a pod returned.
	PodStatus = pleg.PodStatus
	// Quarantined is a pod whose last inspection hung.
	Quarantined = pleg.Quarantined
	// Event is one step in the life of a pod.
	Event = pleg.Event
	// EventType says what happened.
	EventType = pleg.EventType
	// Cache holds the newest status of every pod.
	Cache = cache.Cache
	// Subscription is one subscriber's end of the pipeline.
	Subscription = dispatcher.Subscription
	// SubscribeOptions configure one subscriber.
	SubscribeOptions = dispatcher.SubscribeOptions
	// Position is a place in the stream of one pipeline's events.
	Position = dispatcher.Position
)

// The types of events. See package pleg for what each means.
const (
	ContainerStarted = pleg.ContainerStarted
	ContainerDied    = pleg.ContainerDied
	ContainerRemoved = pleg.ContainerRemoved
	PodSync          = pleg.PodSync

	NetworkSetupCompleted = pleg.NetworkSetupCompleted
	NetworkFailed         = pleg.NetworkFailed

	Synced   = pleg.Synced
	Gap      = pleg.Gap
	Bookmark = pleg.Bookmark
)

// ErrUnavailable is wrapped by the error of a Runtime that could not be reached, or
// is not ready to serve yet.
var ErrUnavailable = pleg.ErrUnavailable

// ErrStopped is returned by [Pipeline.Subscribe] once Run has returned.
var ErrStopped = dispatcher.ErrStopped
