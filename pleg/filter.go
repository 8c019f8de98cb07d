package pleg

// Filter says which events a subscriber or a watch gets. The zero value asks for all,
// except those that come only on request.
type Filter struct {
	// Types are the wanted event types. If empty, all but those that come only on request.
	// Marks always come.
	Types []EventType
	// Namespaces and PodUIDs are the wanted pods. If empty, all.
	Namespaces []string
	PodUIDs    []PodUID
	// Selector is a Kubernetes label selector for the pod's labels, such as
	// "app=web,tier!=test", with at most 64 requirements and 4 KiB. If empty, all.
	Selector string
	// OmitSandboxes leaves out the events of pod sandboxes.
	OmitSandboxes bool
	// NetworkEvents asks for NetworkSetupCompleted and NetworkFailed too if Types is empty.
	// Otherwise only Types counts.
	NetworkEvents bool
}
