package pleg

// Filter selects the events of a subscriber or a watch: an event must match all of its fields. The
// zero value asks for all events of the default types. Marks always come.
type Filter struct {
	// Types are the wanted event types. If empty, the default types: [ContainerStarted],
	// [ContainerDied], [ContainerRemoved] and [PodSync].
	Types []EventType
	// Namespaces are the wanted namespaces, PodUIDs the wanted pods. If empty, all.
	Namespaces []string
	PodUIDs    []PodUID
	// Selector is a Kubernetes label selector for the pod's labels, such as
	// "app=web,tier!=test", with at most 64 requirements and 4 KiB. If empty, all pods.
	Selector string
	// OmitSandboxes leaves out the events of pod sandboxes.
	OmitSandboxes bool
	// NetworkEvents adds [NetworkSetupCompleted] and [NetworkFailed] to the default types. It is
	// ignored if Types is set.
	NetworkEvents bool
}
