package verdict

import (
	"cmp"
	"fmt"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Cause is a known cause of an unhealthy PLEG.
type Cause string

// The causes.
const (
	RuntimeStopped   Cause = "runtime stopped"
	NoPermission     Cause = "no permission"
	RuntimeHangs     Cause = "runtime hangs"
	RuntimeSlow      Cause = "runtime slow"
	RuntimeUnready   Cause = "runtime not ready"
	RuntimeFails     Cause = "runtime fails"
	Contradiction    Cause = "list and status differ"
	HungContainer    Cause = "hung container"
	SlowContainer    Cause = "slow container"
	HungShim         Cause = "hung shim"
	EmptyCgroup      Cause = "container without process"
	Fallback         Cause = "fallback"
	DeadContainers   Cause = "too many dead containers"
	ListTooLarge     Cause = "list too large"
	NetworkPlugin    Cause = "network plugin"
	Disk             Cause = "disk"
	ClientNotReading Cause = "client does not read"
	DaemonSilent     Cause = "daemon silent"
	NodeSilent       Cause = "node silent"
)

const (
	readLog = "read the runtime's log (journalctl -u containerd, or -u crio)"
	start   = "start the runtime (systemctl start containerd, or crio) and " + readLog
	restart = readLog + "; " + goroutines
	again   = "restart it (systemctl restart containerd, or crio; containers keep running)"

	// waitsFor explains the effect of a client that does not read.
	waitsFor = ": a runtime that sends it events waits for it, and soon no pod starts"

	goroutines = "if it is containerd, send it SIGUSR1 to log its goroutines; " + again
)

// advice is the advice for each cause.
var advice = map[Cause]string{
	RuntimeStopped: start,
	NoPermission:   "run this command as root (sudo)",
	RuntimeHangs:   restart,
	RuntimeSlow:    "find what the runtime waits for: CPU and disk of this node, its log, the number of containers; " + restart,
	RuntimeUnready: restart,
	RuntimeFails:   readLog + " at this time; if it names a pod, remove that pod; otherwise " + goroutines,
	Contradiction:  "find out which of the two is right (crictl ps -a, crictl inspect ID) and " + readLog + "; if it lasts, " + again,
	HungContainer: "look for processes of the pod in state D (ps -eo pid,stat,wchan,cmd), a network filesystem that does not answer, " +
		"or a shim that hangs; as the last resort kill the pod's shim. A kubelet waits for this pod at each relist",
	SlowContainer: "look at the processes and volumes of this pod; a kubelet waits for it at each relist that shows a change of the pod",
	HungShim:      "look for the pod's shim (ps -eo pid,stat,cmd), which is stopped or waits for a disk",
	EmptyCgroup:   "the runtime lost the exit of the container and will report it as running forever: delete the pod, or stop the container (crictl -t 1m stop ID)",
	Fallback:      readLog + "; if its socket is gone, " + again,
	DeadContainers: "remove them (crictl rm $(crictl ps -aq --state exited), crictl rmp $(crictl pods -q --state notready)); find out why the kubelet's garbage collection does not " +
		"(--maximum-dead-containers, pods that are never deleted)",
	ListTooLarge:     "reduce the annotations of the largest pods, and remove dead containers and sandboxes",
	NetworkPlugin:    "read the log of the network plugin; look at /etc/cni/net.d and whether its daemon runs on this node",
	Disk:             "free space (crictl rmi --prune), find the process that writes (iotop, pidstat -d), look for disk errors (dmesg)",
	ClientNotReading: "find out why it does not read (ss -xp shows the clients of the runtime's socket), or end it" + waitsFor,
	DaemonSilent:     "read its log (journalctl -u pleg-pipeline, or kubectl -n pleg-pipeline logs --previous) and restart it (systemctl restart pleg-pipeline)",
	NodeSilent:       "check whether the node is up and its daemon runs; if the node is gone, remove its states (pleg-pipeline fleet forget NODE)",
}

// Advice returns what to do about the cause, on a node with containerd or CRI-O.
func (c Cause) Advice() string { return advice[c] }

// elsewhere is the advice if the runtime is not a CRI runtime: its processes, units and containers
// are not known.
var elsewhere = map[Cause]string{
	RuntimeStopped: "start the runtime and read its log",
	RuntimeHangs:   "find out what the runtime waits for, and restart it",
	RuntimeSlow:    "find out what the runtime waits for",
	Contradiction:  "find out which of ListPods and PodStatus is right",
	HungContainer:  "find out what PodStatus of this pod waits for",
	SlowContainer:  "find out what PodStatus of this pod waits for",
}

// advised returns the finding with advice that fits the runtime of a status: only a CRI runtime has an
// address.
func (f Finding) advised(s pleg.Status) Finding {
	if s.Endpoint == "" {
		f.Advice = cmp.Or(elsewhere[f.Cause], "read the log of the runtime at this time")
	}
	return f
}

// WithRuntime returns the finding of a runtime that does not answer with the state of its
// process, which decides what to do.
func (f Finding) WithRuntime(p *nodestate.Process) Finding {
	if p == nil {
		return f
	}
	switch p.State {
	case "":
		f.Advice = fmt.Sprintf("its process (PID %d) has ended: %s", p.PID, start)
	case "T", "t":
		f.Detail += "; " + stateOf(p)
		f.Advice = fmt.Sprintf("continue it (kill -CONT %d), and find out who stopped it", p.PID)
	case "D":
		f.Detail += "; " + stateOf(p)
		f.Advice = waits + "; then " + readLog
	default:
		f.Advice = fmt.Sprintf("%s; kill -USR1 %d makes containerd log its goroutines; %s", readLog, p.PID, again)
	}
	return f
}

const waits = "look for a disk or a network filesystem that does not answer (dmesg, ps -eLo pid,stat,wchan,comm); no signal ends such a wait"

// stateOf describes the state of a process that does not run.
func stateOf(p *nodestate.Process) string {
	does := map[string]string{"T": "is stopped by a signal", "t": "is stopped by a debugger", "D": "waits in the kernel, state D"}[p.State]
	return fmt.Sprintf("%s, PID %d, %s", p.Name, p.PID, does)
}
