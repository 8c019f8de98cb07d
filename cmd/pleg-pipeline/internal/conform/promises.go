package conform

import "context"

// promise is one row of the report.
type promise struct {
	id, text, source string
	// pipeline says what pleg-pipeline does if the promise is broken or not made.
	pipeline string
	// try returns evidence, and an error if the promise is broken.
	try func(ctx context.Context, s *suite) (evidence string, err error)
}

const (
	kep     = "[KEP-3386](https://github.com/kubernetes/enhancements/issues/3386)"
	criAPI  = "CRI v1, api.proto"
	clients = "[containerd#7318](https://github.com/containerd/containerd/issues/7318)"
)

// promises returns all promises in the order in which they are tried.
func promises() []promise {
	return []promise{
		{
			id: "events-off", text: "without events, GetContainerEvents ends with Unimplemented", source: "gRPC status codes",
			pipeline: "a stream that ends within 500 ms counts as no events",
			try:      tryEventsOff,
		},
		{
			id: "container-events", text: "CREATED, STARTED, STOPPED and DELETED of each container", source: kep,
			pipeline: "a list finds the change; then lists are as often as without events",
			try:      tryContainerEvents,
		},
		{
			id: "sandbox-events", text: "CREATED, STARTED, STOPPED and DELETED of each sandbox", source: kep,
			pipeline: "a list finds the change; then lists are as often as without events",
			try:      trySandboxEvents,
		},
		{
			id: "order", text: "events of a pod in the order of its life", source: kep,
			pipeline: "an event that is older than what is known is not used",
			try:      tryOrder,
		},
		{
			id: "once", text: "each event once", source: kep,
			pipeline: "an event that changes nothing sends nothing",
			try:      tryOnce,
		},
		{
			id: "every-client", text: "each of several clients gets every event", source: clients,
			pipeline: "a list finds the change; then lists are as often as without events",
			try:      tryEveryClient,
		},
		{
			id: "complete", text: "an event has the status of the sandbox and of all its containers", source: kep,
			pipeline: "the event is only a reason to list the pod",
			try:      tryComplete,
		},
		{
			id: "agree", text: "the statuses in an event show what it announces", source: kep,
			pipeline: "the event is only a reason to list the pod",
			try:      tryAgree,
		},
		{
			id: "read-after", text: "a status call after an event shows what it announced", source: kep,
			pipeline: "what an event removed stays removed for 10 s, whatever a list shows",
			try:      tryReadAfter,
		},
		{
			id: "created-at", text: "created_at of a pod's events never goes back", source: criAPI,
			pipeline: "an event that is older than what is known is not used",
			try:      tryCreatedAt,
		},
		{
			id: "unread-client", text: "a client that does not read holds up neither pods nor other clients", source: clients,
			pipeline: "reads at once, whatever its subscribers do; lists find what another client holds back",
			try:      tryUnreadClient,
		},
		{
			id: "reconnect", text: "a client that reconnects at once misses nothing", source: kep,
			pipeline: "lists all pods after every connect",
			try:      tryReconnect,
		},
		{
			id: "backlog", text: "a client gets no events from before it came", source: kep,
			pipeline: "an event that is older than what is known is not used",
			try:      tryBacklog,
		},
		{
			id: "status-in-sandbox", text: "PodSandboxStatus has the statuses of the containers and a timestamp", source: kep,
			pipeline: "asks for each container",
			try:      tryStatusInSandbox,
		},
		{
			id: "final-exit", text: "exit code and reason are final when EXITED shows first", source: "[containerd#12133](https://github.com/containerd/containerd/issues/12133)",
			pipeline: "asks again at the next change of the pod",
			try:      tryFinalExit,
		},
		{
			id: "exit-delay", text: "EXITED shows within a second of the end of the process", source: "the kubelet's relist period",
			pipeline: "nothing: it cannot know earlier",
			try:      tryExitDelay,
		},
		{
			id: "streaming-lists", text: "streamed lists equal the unary ones", source: criAPI,
			pipeline: "uses unary lists",
			try:      tryStreamingLists,
		},
		{
			id: "filters", text: "lists filter by labels, sandbox, state and id", source: criAPI,
			pipeline: "nothing: it lists a single pod by its label",
			try:      tryFilters,
		},
		{
			id: "not-found", text: "the status of an unknown id is NotFound", source: criAPI,
			pipeline: "the inspection fails and is tried again",
			try:      tryNotFound,
		},
		{
			id: "large-list", text: "a list of sandboxes above 16 MiB can be read", source: "the kubelet's limit of a message",
			pipeline: "lists the sandboxes in portions, and reports that",
			try:      tryLargeList,
		},
		{
			id: "exit-while-down", text: "a container that ends while the runtime is down keeps its exit code", source: criAPI,
			pipeline: "reports the code that the runtime has",
			try:      tryExitWhileDown,
		},
	}
}
