package control

// Command is what a client is told to do.
type Command struct {
	// Do is one of the Client constants.
	Do string `json:"do"`
	// Want is the number of events of each type that ClientExpect waits for.
	Want map[string]int `json:"want,omitempty"`
	// Keep makes the client note every event of the window, for [Report.Log].
	Keep bool `json:"keep,omitempty"`
	// TimeoutMS bounds ClientWait, in milliseconds.
	TimeoutMS int `json:"timeoutMS,omitempty"`
}

// What a client can do.
const (
	// ClientExpect begins a window: what is counted from now on.
	ClientExpect = "expect"
	// ClientStart starts the candidate.
	ClientStart = "start"
	// ClientWait answers once the window has the events it wants.
	ClientWait = "wait"
	// ClientReport answers at once.
	ClientReport = "report"
	// ClientStop ends the candidate and then the client.
	ClientStop = "stop"
)

// Seen counts the events of one type.
type Seen struct {
	Count int `json:"count"`
	// FirstMS and LastMS are when they arrived, in milliseconds from the
	// beginning of the relist that saw the first change of the window.
	FirstMS float64 `json:"firstMS"`
	LastMS  float64 `json:"lastMS"`
}

// Arrival is one event and when it arrived.
type Arrival struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	// UnixNS is the wall clock; both processes are on one machine.
	UnixNS int64 `json:"unixNS"`
}

// Report is what a client saw in a window and what that cost.
type Report struct {
	Err string `json:"err,omitempty"`
	// Done reports whether the window had all the events it wants.
	Done bool            `json:"done"`
	Seen map[string]Seen `json:"seen,omitempty"`
	// Missed is the number of events that PodSyncs stood for, and Repaired
	// the number of those PodSyncs.
	Missed   uint64    `json:"missed"`
	Repaired int       `json:"repaired"`
	Usage    Usage     `json:"usage"`
	Log      []Arrival `json:"log,omitempty"`
	// Width is the number of pods that the candidate now inspects at once at
	// most; 0 if it does not tell.
	Width int `json:"width,omitempty"`
}

// Order is what the node is told to do.
type Order struct {
	// Do is one of the Node constants.
	Do string `json:"do"`
	// Pods, Containers and Dead describe the pods that NodePopulate adds: Dead
	// earlier, exited attempts of each container. Finished makes every
	// container of them exited and the sandbox NOTREADY.
	Pods       int  `json:"pods,omitempty"`
	Containers int  `json:"containers,omitempty"`
	Dead       int  `json:"dead,omitempty"`
	Finished   bool `json:"finished,omitempty"`
	// Change is restart, replace, exit or remove; NodeBurst does it to Pods
	// pods in one step, NodeChurn to one pod after the other.
	Change string `json:"change,omitempty"`
	// Profile is the name of a latency profile of the simulated runtime.
	Profile string `json:"profile,omitempty"`
	// Limit is the number of calls the runtime takes at once; 0 means any.
	Limit int `json:"limit,omitempty"`
	// Rate is the number of changes a second, and Seconds how long, of
	// NodeChurn.
	Rate    float64 `json:"rate,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// What the node can do.
const (
	// NodePopulate adds pods.
	NodePopulate = "populate"
	// NodeShape sets the latency profile and the limit of calls at once.
	NodeShape = "shape"
	// NodeBurst sets the counters to zero and changes pods in one step.
	NodeBurst = "burst"
	// NodeHang makes the status calls of as many pods hang.
	NodeHang = "hang"
	// NodeChurn changes pods steadily, and answers when it is over.
	NodeChurn = "churn"
	// NodeReset sets the counters to zero.
	NodeReset = "reset"
	// NodeStats answers the counters.
	NodeStats = "stats"
	// NodeStop ends the node.
	NodeStop = "stop"
)

// RPC counts the calls of one kind at the runtime.
type RPC struct {
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors,omitempty"`
	// TimeMS is the sum of their execution, without waiting for the limit.
	TimeMS float64 `json:"timeMS"`
}

// Answer is what the node answers. All counters are since the last reset.
type Answer struct {
	Err string `json:"err,omitempty"`
	// Changed is the number of pods that a burst or a churn changed.
	Changed int            `json:"changed,omitempty"`
	RPCs    map[string]RPC `json:"rpcs,omitempty"`
	// PeakInFlight is the most calls that executed at once, PeakArrived the
	// most that executed or waited for the limit.
	PeakInFlight int     `json:"peakInFlight,omitempty"`
	PeakArrived  int     `json:"peakArrived,omitempty"`
	CPUSeconds   float64 `json:"cpuSeconds"`
	// Log has what a churn changed: the id of each new container.
	Log []Arrival `json:"log,omitempty"`
}

// Failure is what went wrong; empty if nothing did.
func (r Report) Failure() string { return r.Err }

// Failure is what went wrong; empty if nothing did.
func (a Answer) Failure() string { return a.Err }
