// Package simruntime is a simulated container runtime: a real gRPC server of CRI v1 on a
// unix socket, or on any listener, without containers behind it. A test or a benchmark can make
// pods by the thousand, change all of them at one moment, and make calls slow, hang, fail or answer
// nonsense: a real runtime does not allow this.
//
//	control API (Update, AddPod, Burst, Churn ...)     CRI client
//	        |                                              | gRPC
//	        v                                              v
//	  +-----------+   events   +-----+ per client   +---------------+
//	  |   state   |----------->| hub |------------->| limit, faults |
//	  +-----------+            +-----+              |   counters    |
//	        ^                                       +---------------+
//	        +------------- reads -------------------------+
//
// # Usage
//
//	rt := simruntime.New(simruntime.Options{Seed: 1})
//	pods := rt.Populate(simruntime.Population{Pods: 110, Containers: 2})
//	err := rt.ListenAndServe(ctx, "/run/sim.sock") // until ctx ends
//	rt.Burst(50, simruntime.Restart) // meanwhile, from other goroutines
//	end := rt.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: uid, Hang: true})
//	err = rt.Churn(ctx, simruntime.ChurnOptions{Rate: 20})
//
// # What is simulated
//
// RuntimeService implements Version, Status, the statuses of sandboxes and containers, the lists
// with all filters, and GetContainerEvents. All other calls answer Unimplemented, except the call
// of ImageService that crictl begins with.
//
// Pods, containers and their states are the types of package pleg; wire.go converts them to the
// messages that clients get. Objects carry the labels and annotations of the kubelet, times in
// nanoseconds, exit codes and reasons. In lists the newest pod is first. A sandbox that is not ready is
// without addresses, as in containerd. Ids and names depend on Options.Seed alone.
//
// A container does nothing: it runs until the control API ends it.
//
// # Events
//
// Each client of GetContainerEvents gets each event, with the statuses of the
// sandbox and its containers as of the event. A sandbox that is removed causes
// STOPPED of its containers, its own STOPPED, DELETED of its containers, and
// its own DELETED. Reads agree with an event once it arrives, except that with
// Options.DeletedLinger a deleted sandbox stays listed for that time. 1000 events
// wait for a slow client; more are dropped and counted. A [Fault] of the stream loses or delays them.
//
// # Faults
//
// [Runtime.Inject] adds rules for some calls, [Runtime.SetMaxConcurrent] bounds the
// calls that execute at once. A call waits for the limit first; then its latency passes,
// then it hangs, fails or is answered. During all of this it counts for the limit.
//
// A rule counts the calls that it matches; their number alone determines which of
// them it hits.
//
// # Concurrency and time
//
// Every method may be called from any goroutine. An update is atomic: a list
// shows all of it or nothing. The package starts no goroutine outside the
// calls of Serve, ListenAndServe and Churn, which return when their
// context has ended, and the timers of Options.DeletedLinger. Time comes from
// package time: over a bufconn listener all of it works on the fake clock of a
// synctest bubble.
package simruntime
