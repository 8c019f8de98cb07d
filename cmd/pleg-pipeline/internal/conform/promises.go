package conform

// promise is one row of the report.
type promise struct {
	id, text, source string
	// pipeline says what pleg-pipeline does if the promise is broken or not made.
	pipeline string
	try      func(*trial) result
}

// What is promised by, and what pleg-pipeline does.
const (
	kep     = "[KEP-3386](https://github.com/kubernetes/enhancements/issues/3386)"
	criAPI  = "CRI v1, api.proto"
	clients = "[containerd#7318](https://github.com/containerd/containerd/issues/7318)"

	listFinds = "a list finds the change; then lists come as often as without events"
	notUsed   = "an event that is older than what is known is not used"
	listsPod  = "the event is only a reason to list the pod"
)

// promises returns all promises in the order in which they are tried.
func promises() []promise {
	return []promise{
		{
			"events-off", "without events, GetContainerEvents ends with Unimplemented", "gRPC status codes",
			"a stream that ends within 500 ms counts as no events", tryEventsOff,
		},
		{"container-events", "CREATED, STARTED, STOPPED and DELETED of each container", kep, listFinds, judged("events missing", missing(false))},
		{"sandbox-events", "CREATED, STARTED, STOPPED and DELETED of each sandbox", kep, listFinds, judged("events missing", missing(true))},
		{"order", "events of a pod in the order of its life", kep, notUsed, judged("events out of order", bothClients(outOfOrder))},
		{"once", "each event once", kep, "an event that changes nothing sends nothing", judged("events repeated", bothClients(repeated))},
		{"every-client", "each of several clients gets every event", clients, listFinds, judged("events that one of two clients did not get", missedByOne)},
		{"complete", "an event has the status of the sandbox and of all its containers", kep, listsPod, judged("events without all statuses", eachEvent(incomplete))},
		{"agree", "the statuses in an event show what it announces", kep, listsPod, judged("events disagree", eachEvent(disagreement))},
		{
			"read-after", "a status call after an event shows what it announced", kep,
			"what an event removed stays removed for 10 s, whatever a list shows", judged("events disagree", eachEvent(func(e received) string { return e.read })),
		},
		{"created-at", "created_at of a pod's events never goes back", criAPI, notUsed, judged("events go back", backInTime)},
		{
			"unread-client", "a client that does not read holds up neither pods nor other clients", clients,
			"reads at once, whatever its subscribers do; lists find what another client holds back", tryUnreadClient,
		},
		{"reconnect", "a client that reconnects at once misses nothing", kep, "lists all pods after every connect", tryReconnect},
		{"backlog", "a client gets no events from before it came", kep, notUsed, tryBacklog},
		{"status-in-sandbox", "PodSandboxStatus has the statuses of the containers and a timestamp", kep, "asks for each container", tryStatusInSandbox},
		{
			"final-exit", "exit code and reason are final when EXITED shows first", "[containerd#12133](https://github.com/containerd/containerd/issues/12133)",
			"asks again at the next change of the pod", tryFinalExit,
		},
		{"exit-delay", "EXITED shows within a second of the end of the process", "the kubelet's relist period", "nothing: it cannot know earlier", tryExitDelay},
		{"streaming-lists", "streamed lists equal the unary ones", criAPI, "uses unary lists", tryStreamingLists},
		{"filters", "lists filter by labels, sandbox, state and id", criAPI, "nothing: it lists a single pod by its label", tryFilters},
		{"not-found", "the status of an unknown id is NotFound", criAPI, "the inspection fails and is tried again", tryNotFound},
		{
			"large-list", "a list of sandboxes above 16 MiB can be read", "the kubelet's limit of a message",
			"lists the sandboxes in portions, and reports that", tryLargeList,
		},
		{"exit-while-down", "a container that ends while the runtime is down keeps its exit code", criAPI, "reports the code that the runtime has", tryExitWhileDown},
	}
}
