package pipeline

import (
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

// The names below are those of packages pleg, cache and stage/dispatcher, so that
// an embedder imports one package.
type (
	// Runtime is what the pipeline needs of a container runtime.
	Runtime = pleg.Runtime
	// PodLister is a Runtime that can list one pod.
	PodLister = pleg.PodLister
	// EventWatcher is a Runtime with a stream of CRI events.
	EventWatcher = pleg.EventWatcher
	// Hint is a CRI event as an EventWatcher reports it.
	Hint = pleg.Hint
	// CallReporter is a Runtime that reports the calls in flight.
	CallReporter = pleg.CallReporter
	// Degraded is a Runtime that reports when its lists work in a roundabout way.
	Degraded = pleg.Degraded
)

// Pods and their statuses.
type (
	// Pod is a pod as the runtime listed it.
	Pod = pleg.Pod
	// PodUID identifies a pod.
	PodUID = pleg.PodUID
	// Container is a container or a pod sandbox in a list.
	Container = pleg.Container
	// ContainerID identifies a container or a pod sandbox.
	ContainerID = pleg.ContainerID
	// State is the state of a container or a pod sandbox.
	State = pleg.State
	// PodStatus is the result of a pod's inspection.
	PodStatus = pleg.PodStatus
	// ContainerStatus is the status of one container.
	ContainerStatus = pleg.ContainerStatus
	// SandboxStatus is the status of one pod sandbox.
	SandboxStatus = pleg.SandboxStatus
	// Quarantined is a pod whose last inspection hung.
	Quarantined = pleg.Quarantined
	// Cache reads the newest status of every pod.
	Cache = cache.Reader
	// CacheEntry is what the cache knows of one pod.
	CacheEntry = cache.Entry
	// PendingPod is a pod that waits for its inspection.
	PendingPod = cache.Pending
)

// What a pipeline does at present.
type (
	// Status is what a pipeline does at one time, and what it waits for.
	Status = pleg.Status
	// RelistStatus describes the lists of all pods.
	RelistStatus = pleg.RelistStatus
	// Inspection is an inspection in flight.
	Inspection = pleg.Inspection
	// Call is a call to the runtime that has not returned yet.
	Call = pleg.Call
)

// Events and subscriptions.
type (
	// Event is one step in the life of a pod.
	Event = pleg.Event
	// EventType says what happened.
	EventType = pleg.EventType
	// Subscription is one subscriber's end of the pipeline.
	Subscription = dispatcher.Subscription
	// Position is a place in the event stream of one pipeline.
	Position = pleg.Position
)

// The types of events; package pleg defines them.
const (
	ContainerStarted = pleg.ContainerStarted
	ContainerDied    = pleg.ContainerDied
	ContainerRemoved = pleg.ContainerRemoved
	ContainerChanged = pleg.ContainerChanged
	PodSync          = pleg.PodSync

	NetworkSetupCompleted = pleg.NetworkSetupCompleted
	NetworkFailed         = pleg.NetworkFailed

	Synced   = pleg.Synced
	Gap      = pleg.Gap
	Bookmark = pleg.Bookmark
)

// The reasons of a Gap.
const (
	HistoryTooShort = pleg.HistoryTooShort
	OtherEpoch      = pleg.OtherEpoch
	Stopped         = pleg.Stopped
)

// The states of containers and pod sandboxes.
const (
	StateUnknown = pleg.StateUnknown
	StateCreated = pleg.StateCreated
	StateRunning = pleg.StateRunning
	StateExited  = pleg.StateExited
)

var (
	// ErrUnavailable is wrapped by the error of a Runtime that cannot be reached or
	// is not ready.
	ErrUnavailable = pleg.ErrUnavailable
	// ErrNoEvents is wrapped by the error of an EventWatcher without an event
	// stream.
	ErrNoEvents = pleg.ErrNoEvents
	// ErrStopped is returned by [Pipeline.Subscribe] and by GetNewerThan once Run has
	// returned.
	ErrStopped = pleg.ErrStopped
	// ErrNotInspected is the error of a CacheEntry whose first inspection has not
	// ended yet.
	ErrNotInspected = cache.ErrNotInspected
)
