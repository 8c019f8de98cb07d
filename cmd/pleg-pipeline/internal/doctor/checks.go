package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// The thresholds of the causes.
const (
	// slowStatus is ten times the duration of a status call of a busy, healthy
	// runtime.
	slowStatus = 200 * time.Millisecond
	// manyHung calls, if they are half of all, mean a slow runtime, not a few hung
	// containers.
	manyHung = 3
	// longCall is the duration from which a single call is reported.
	longCall = time.Second
	// slowDisk is the time at which ImageFsInfo, which reads the filesystem, is slow.
	slowDisk = 2 * time.Second
	// manyDead is several times the number of dead containers that a kubelet leaves
	// on a node of 110 pods. Each is in every list.
	manyDead = 1000
	// mostDead is the ratio of dead to running containers that counts, if at least
	// enoughDead are dead.
	mostDead, enoughDead = 5, 200
	// fullList is the share of the limit at which a list counts as too large.
	fullList = 0.6
	// fullDisk is the percentage at which a kubelet evicts pods.
	fullDisk = 95
	// busyDisk is the percentage of time in which a process waited for the disk.
	busyDisk = 40
)

const (
	start   = "start the runtime (systemctl status containerd, or crio) and read its log (journalctl -u containerd)"
	rename  = "name the runtime's socket with --runtime-endpoint"
	restart = "read the runtime's log; if it is containerd, send it SIGUSR1 to log its goroutines; restart it (containers keep running)"
)

// signs show that a cause fits. The first is the summary.
type signs struct {
	texts   []string
	problem bool // the severity
}

func (s *signs) add(problem bool, format string, args ...any) {
	s.texts, s.problem = append(s.texts, fmt.Sprintf(format, args...)), s.problem || problem
}

// checks are the known causes in the order in which they are reported.
var checks = []struct {
	cause  Cause
	find   func(*examination, *signs)
	advice string
}{
	{RuntimeUnready, (*examination).unready, restart},
	{RuntimeSlow, (*examination).slow, "find what the runtime waits for: CPU and disk of this node, its log, the number of containers; " + restart},
	{HungContainer, (*examination).hung, "look for processes of the pod in state D (ps -eo pid,stat,wchan,cmd), a network filesystem that does not answer, " +
		"or a shim that hangs; as the last resort kill the pod's shim. A kubelet waits for this pod at each relist"},
	{RuntimeFails, (*examination).failing, "read the runtime's log at this time (journalctl -u containerd, or -u crio); if it names the pod, remove that pod; " +
		"otherwise " + restart},
	{SickDaemon, (*examination).sickDaemon, restart},
	{ListTooLarge, (*examination).tooLarge, "reduce the annotations of the largest pods, and remove dead containers and sandboxes"},
	{SlowContainer, (*examination).slowContainer, "look at the processes and volumes of this pod; a kubelet waits for it at each relist that shows a change of the pod"},
	{EmptyCgroup, (*examination).empty, "the runtime lost the exit of the container and will report it as running forever: delete the pod, or stop the container (crictl stop ID)"},
	{DeadContainers, (*examination).dead, "remove them (crictl rm $(crictl ps -aq --state exited)); find out why the kubelet's garbage collection does not " +
		"(--maximum-dead-containers, pods that are never deleted)"},
	{NetworkPlugin, (*examination).network, "read the log of the network plugin; look at /etc/cni/net.d and whether its daemon runs on this node"},
	{Disk, (*examination).disk, "free space (crictl rmi --prune), find what writes (iotop, pidstat -d), look for disk errors (dmesg)"},
}

// judge compares the results with the known causes.
func (e *examination) judge() {
	slow := false
	for _, c := range checks {
		// A slow runtime is why its calls hang and why its daemon is not healthy.
		if slow && slices.Contains([]Cause{HungContainer, SlowContainer, SickDaemon}, c.cause) {
			continue
		}
		var s signs
		if c.find(e, &s); len(s.texts) == 0 {
			continue
		}
		slow = slow || c.cause == RuntimeSlow
		severity := Warning
		if s.problem {
			severity = Problem
		}
		e.report.Findings = append(e.report.Findings, newFinding(c.cause, severity, s.texts[0], strings.Join(s.texts, "; "), c.advice))
	}
}

// newFinding returns a finding. Without evidence, the summary is the evidence.
func newFinding(cause Cause, severity Severity, summary, evidence, advice string) Finding {
	return Finding{cause, severity, summary, cmp.Or(evidence, summary), advice}
}

// unmet returns what the runtime says about a condition that does not hold.
func (e *examination) unmet(condition string) (text string, unmet bool) {
	for _, c := range e.report.Conditions {
		if c.Type == condition && !c.Status {
			return strings.TrimSpace(c.Reason + " " + c.Message), true
		}
	}
	return "", false
}

func (e *examination) unready(s *signs) {
	if text, unmet := e.unmet("RuntimeReady"); unmet {
		s.add(true, "the runtime reports that it is not ready: %s", text)
	}
}

// slow finds a slow runtime. A few hung calls alone do not make it slow.
func (e *examination) slow(s *signs) {
	for _, c := range e.report.Calls {
		switch c.Method {
		case "ListPodSandbox", "ListContainers":
			if c.Hung > 0 {
				s.add(true, "%s does not answer within %v", c.Method, e.CallTimeout)
			} else if c.LongestSecs > e.Period.Seconds() {
				s.add(true, "%s takes %s, longer than the period of %v", c.Method, seconds(c.LongestSecs), e.Period)
			}
		case "Version", "Status":
			if c.LongestSecs > slowStatus.Seconds()*5 {
				s.add(true, "%s takes %s", c.Method, seconds(c.LongestSecs))
			}
		case "PodSandboxStatus", "ContainerStatus":
			if c.Hung >= manyHung && 2*c.Hung >= c.Count {
				s.add(true, "%d of %d %s calls do not return within %v", c.Hung, c.Count, c.Method, e.CallTimeout)
			} else if c.Count >= manyHung && c.MedianSeconds > slowStatus.Seconds() {
				s.add(false, "half of the %s calls take %s or longer", c.Method, seconds(c.MedianSeconds))
			}
		}
	}
	if one := e.report.Relist.OneByOneSeconds; one > e.Threshold.Seconds() && len(s.texts) > 0 {
		s.add(true, "if all pods changed at once, a kubelet would need %s, longer than its threshold of %v", seconds(one), e.Threshold)
	}
}

// failing finds calls that return an error. A list that is too large is a cause of its own.
func (e *examination) failing(s *signs) {
	for _, c := range e.report.Calls {
		portioned := slices.ContainsFunc(e.report.Lists, func(l ListSize) bool { return l.Method == c.Method && l.Portioned })
		if c.Failed > 0 && c.Method != "ImageFsInfo" && !portioned {
			s.add(true, "%s fails: %s", c.Method, c.Error)
		}
	}
	if failed := e.failedPods(); len(failed) > 0 && len(s.texts) == 1 {
		summary := fmt.Sprintf("%s: %s fails: %s%s", names(failed), failed[0].method, e.report.Failed[0].Error, e.others(len(failed)))
		s.texts = slices.Insert(s.texts, 0, summary)
	}
}

// sickDaemon finds a daemon whose lists fail.
func (e *examination) sickDaemon(s *signs) {
	if d := e.Daemon; d != nil && (!d.Healthy || d.FailingSeconds > 0) {
		s.add(!d.Healthy, "the daemon at %s: %s", d.Socket, d.health())
	}
}

func (e *examination) tooLarge(s *signs) {
	for _, l := range e.report.Lists {
		switch {
		case l.Portioned || l.Bytes >= l.LimitBytes:
			s.add(true, "%s exceeds the %s that a kubelet accepts, so no list succeeds (known size: %s)", l.Method, size(l.LimitBytes), size(l.Bytes))
		case float64(l.Bytes) >= fullList*float64(l.LimitBytes):
			s.add(false, "%s has %s, %.0f %% of the limit of %s", l.Method, size(l.Bytes), 100*float64(l.Bytes)/float64(l.LimitBytes), size(l.LimitBytes))
		}
	}
	if len(s.texts) == 0 {
		return
	}
	var names []string
	for _, p := range e.report.Largest {
		names = append(names, fmt.Sprintf("%s %s (annotations %s)", p.Pod, size(p.Bytes), size(p.Annotations)))
	}
	s.texts[0] += "; the largest pods: " + strings.Join(names, ", ")
}

func (e *examination) empty(s *signs) {
	more := ""
	if n := len(e.report.Empty); n > 1 {
		more = fmt.Sprintf(" and %d more", n-1)
	}
	for i, c := range e.report.Empty {
		if i == 0 {
			s.add(true, "%s (%s %s)%s: the runtime says that it runs, but its cgroup has no process", c.Pod, c.Container, view.ShortID(c.ID), more)
		}
		s.add(true, "%s (%s %s): cgroup %s has no process", c.Pod, c.Container, c.ID, c.Cgroup)
	}
}

func (e *examination) dead(s *signs) {
	c := e.report.Counts
	if c.Exited < manyDead && (c.Exited < enoughDead || c.Exited < mostDead*c.Running) {
		return
	}
	var names []string
	for _, p := range e.report.MostDead {
		names = append(names, fmt.Sprintf("%s %d", p.Pod, p.Exited))
	}
	s.add(false, "%d of %d containers have exited and are in every list; most in %s", c.Exited, c.Containers, strings.Join(names, ", "))
}

func (e *examination) network(s *signs) {
	if text, unmet := e.unmet("NetworkReady"); unmet {
		s.add(true, "the runtime reports that the network is not ready: %s", text)
	} else if n := e.report.Counts.WithoutIP; n > 0 {
		s.add(false, "%d ready sandboxes have no address", n)
	}
}

func (e *examination) disk(s *signs) {
	n := &e.report.Node
	if n.UsedPercent != nil && *n.UsedPercent >= fullDisk {
		s.add(true, "%s is %.0f %% full", n.ImageFilesystem, *n.UsedPercent)
	}
	if n.InodesPercent != nil && *n.InodesPercent >= fullDisk {
		s.add(true, "%.0f %% of the inodes of %s are in use", *n.InodesPercent, n.ImageFilesystem)
	}
	if n.IOPressure != nil && *n.IOPressure >= busyDisk {
		s.add(false, "processes waited for the disk in %.0f %% of the last ten seconds", *n.IOPressure)
	}
	for _, c := range e.report.Calls {
		if c.Method == "ImageFsInfo" && (c.Hung > 0 || c.LongestSecs > slowDisk.Seconds()) {
			s.add(false, "the runtime takes %s to read its filesystem usage", seconds(c.LongestSecs))
		}
	}
}
