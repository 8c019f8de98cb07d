package main

// group is a section of the results.
type group struct{ name, title, about string }

// groups are the kinds of scenarios, in the order of the sections.
var groups = []group{
	{"burst", "Burst", "All containers of all pods exit in one step, as after a node-wide OOM kill or a power cut. " +
		"The latency profile **node** is that of a busy node: `ContainerStatus` 12 ms, `PodSandboxStatus` 5 ms, `ListContainers` 30 ms, " +
		"`ListPodSandbox` 18 ms. **zero** adds no latency. **tail** has the medians of node and a 99th percentile of 20 times that.\n\n" +
		"With 16 inspectors the time above the limit is CPU time of two processes on two cores: 16 calls end together, and the next 16 wait " +
		"until those are read and decoded. A fixed width shows the same. A CPU profile of the client (25 runs of 110 pods x 2, node latency) has " +
		"26 % in gRPC calls, 16 % in allocations, 15 % in the gRPC reader, 11 % in growing goroutine stacks, 11 % in decoding statuses, " +
		"8 % in the gRPC writer, 8 % in the scheduler and 5 % in garbage collection; some of these overlap."},
	{"single", "One pod", "Only the pod's own status calls can run at the same time, and the stages hand values from goroutine to goroutine, " +
		"which a single loop does not."},
	{"limited", "A runtime that serves 8 calls at once", "Calls above that number wait in the runtime; they must not make anything slower. " +
		"Without latency two cores never execute 8 calls at once, so the limit has an effect in the node profile only. " +
		"An inspection of a pod of 2 containers has up to 3 calls in flight."},
	{"shift", "A runtime that becomes slow", "The latency rises from zero to that of a busy node at the moment of the burst, but the runtime " +
		"still serves any number of calls. A pipeline that finds its width by the latency of calls must not take this for a full runtime."},
	{"hung", "Hung calls", "The status calls of some of the pods that change never return; measured is the last event of all other pods. " +
		"The deadline of a call is 5 s here (the kubelet's is 2 minutes), and a serial relist waits for it once for each such pod. " +
		"Until an inspection counts as hung, after 1 s (`HungAfter`), it holds its inspector: with 5 hung inspections and 8 inspectors " +
		"the other pods have 3 inspectors in that second, and at least half of all after it."},
	{"storm", "Cold start", "The process starts on a node with many exited containers and inspects all of them."},
	{"restart", "Repeated restarts", "The status of an exited container is final. A relist that fetches it at each inspection pays for every restart."},
	{"idle", "Idle node", "The figures are for one relist in which nothing changed."},
	{"churn", "Steady change", "Containers are replaced one after the other at a steady rate. The delay from a change to its event contains the wait " +
		"for the next relist, so its median is at least half a period. One call at a time cannot sustain 30 changes a second: " +
		"its relists take longer and longer until a container starts and ends between two of them, which fails the run. " +
		"The two minutes are therefore at 20 a second, with all candidates at the same time, each with its own node: together they use a sixth " +
		"of the machine. At 100 a second only pipelines are measured."},
	{"events", "CRI events", "First the delay from a change to its event, with the default periods: with CRI events no relist has to come first. " +
		"Then the cost of a minute without a change: with CRI events the next list of all pods is due after five minutes."},
	{"containerd", "Real containerd", "50 real pods with real processes, whose containers exit while the client is stopped (SIGSTOP), so that one relist " +
		"shows all of them. The server's CPU time is that of the containerd process. With a fixed width the time still falls up to 32 pods at once, " +
		"slowly from 8 on, and containerd's CPU time does not rise, so the pipeline stays at its bound or near it."},
}

// stepsAbout introduces the Go benchmarks.
const stepsAbout = "Go benchmarks in memory, without a runtime. *Relist* compares a list in which nothing changed; `listed=anew` has new pointers for the " +
	"same pods, `listed=again` the same pointers. *FanOut* sends events to subscribers; `watch.Broadcaster` of k8s.io/apimachinery is measured " +
	"in both its modes: *wait* blocks while a watcher is full, *drop* discards its events without a trace. *Events* reads 20 000 CRI " +
	"events from a socket, by the CRI client alone or with the hinter behind it."
