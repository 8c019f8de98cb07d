package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// The thresholds of the causes.
const (
	// slowStatus is ten times the duration of a status call of a busy, healthy
	// runtime.
	slowStatus = 200 * time.Millisecond
	// manyCalls are enough for a median.
	manyCalls = 3
	// hungFactor times the median is what a status call takes that hangs. Those of a slow runtime
	// take different times.
	hungFactor = 5
	// longCall is the duration from which a single call is reported.
	longCall = time.Second
	// slowDisk is the time at which ImageFsInfo, which reads the filesystem, is slow.
	slowDisk = 2 * time.Second
	// manyDead is several times the number of dead containers and sandboxes that a kubelet
	// leaves on a node of 110 pods. Each is in every list.
	manyDead = 1000
	// mostDead is the ratio of dead to running containers that counts, if at least enoughDead are
	// dead.
	mostDead, enoughDead = 5, 200
	// fullList is the share of the limit at which a list counts as too large.
	fullList = 0.6
	// busyDisk is the percentage of time in which a process waited for the disk.
	busyDisk = 40
)

// signs show that a cause fits. The first is the summary.
type signs struct {
	texts   []string
	problem bool // the severity
}

func (s *signs) add(problem bool, format string, args ...any) {
	s.texts, s.problem = append(s.texts, fmt.Sprintf(format, args...)), s.problem || problem
}

// checks are the causes that only an examination finds, in the order in which they are
// reported.
var checks = []struct {
	cause verdict.Cause
	find  func(*examination, *signs)
}{
	{verdict.RuntimeUnready, (*examination).unready},
	{verdict.RuntimeSlow, (*examination).slow},
	{verdict.RuntimeFails, (*examination).failing},
	{verdict.ListTooLarge, (*examination).tooLarge},
	{verdict.SlowContainer, (*examination).slowContainer},
	{verdict.EmptyCgroup, (*examination).empty},
	{verdict.DeadContainers, (*examination).dead},
	{verdict.NetworkPlugin, (*examination).network},
	{verdict.Disk, (*examination).waitsForDisk},
}

// runChecks compares the results with the known causes.
func (e *examination) runChecks() (found []verdict.Finding) {
	slow := false
	for _, c := range checks {
		var s signs
		if c.find(e, &s); len(s.texts) == 0 || slow && c.cause == verdict.SlowContainer { // a slow runtime is why
			continue
		}
		slow = slow || c.cause == verdict.RuntimeSlow
		f := verdict.Finding{Cause: c.cause, Severity: verdict.Warning, Summary: s.texts[0], Evidence: strings.Join(s.texts, "; ")}
		if s.problem {
			f.Severity = verdict.Problem
		}
		if c.cause == verdict.RuntimeSlow { // as the daemon has it
			f.Subject, f.What, f.Detail = "the runtime", "is slow", ": "+f.Summary
		}
		found = append(found, f)
	}
	return found
}

// andMore returns " and 2 more"; "" for none.
func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

func (e *examination) unready(s *signs) {
	if text, unmet := e.report.unmet("RuntimeReady"); unmet {
		s.add(true, "the runtime reports that it is not ready: %s", text)
	}
}

// slow finds a slow runtime. Calls that hang are not its matter.
func (e *examination) slow(s *signs) {
	lists := 0
	for _, c := range e.report.Calls {
		switch c.Method {
		case "ListPodSandbox", "ListContainers":
			if c.Hung == 0 && c.LongestSecs > period.Seconds() { // first, as the daemon has it
				s.texts = slices.Insert(s.texts, lists, fmt.Sprintf("%s takes %s, longer than the period of %v", c.Method, seconds(c.LongestSecs), period))
				lists++
			}
		case "Version", "Status":
			if c.LongestSecs > longCall.Seconds() {
				s.add(false, "%s takes %s", c.Method, seconds(c.LongestSecs))
			}
		case "PodSandboxStatus", "ContainerStatus":
			if (2*c.Hung < c.Count || e.late(c)) && c.Count >= manyCalls && c.MedianSeconds > slowStatus.Seconds() {
				s.add(false, "half of the %s calls take %s or longer", c.Method, seconds(c.MedianSeconds))
			}
		}
	}
	if one := e.report.Relist.OneByOneSeconds; one > threshold.Seconds() && len(s.texts) > 0 {
		s.add(false, "if all pods changed at once, a kubelet would need %s, longer than its threshold of %v", seconds(one), threshold)
	}
}

// late reports whether status calls that do not return in time are only slow, as those that do.
func (e *examination) late(c Call) bool {
	return c.Count-c.Hung >= manyCalls && hungFactor*c.answered >= e.CallTimeout.Seconds()
}

// failing finds calls that return an error. A list that is too large is a cause of its own.
func (e *examination) failing(s *signs) {
	for _, c := range e.report.Calls {
		portioned := slices.ContainsFunc(e.report.Lists, func(l ListSize) bool { return l.Method == c.Method && l.Portioned })
		if c.Failed > 0 && c.Method != "ImageFsInfo" && !portioned {
			s.add(true, "%s fails: %s", c.Method, c.Error)
		}
	}
	if len(e.report.Failed) > 0 && len(s.texts) == 1 {
		s.texts = slices.Insert(s.texts, 0, e.firstFailed())
	}
	e.malformed(s)
}

// firstFailed names the pods whose status calls fail.
func (e *examination) firstFailed() string {
	pods := make(map[string]bool)
	for _, f := range e.report.Failed {
		pods[f.PodUID] = true
	}
	first := slices.MinFunc(e.report.Failed, func(a, b ItemCall) int { return cmp.Compare(a.Pod, b.Pod) })
	return fmt.Sprintf("%s%s: %v fails: %s%s", first.Pod, andMore(len(pods)-1), first.call(), first.Error, verdict.Others(e.report.Counts.Pods-len(pods)))
}

// slowContainer finds a single call that takes long although most do not.
func (e *examination) slowContainer(s *signs) {
	if slowest := e.report.Slowest; len(slowest) > 0 && slowest[0].Seconds >= longCall.Seconds() {
		c := slowest[0]
		s.add(false, "%s: %v takes %s%s", c.Pod, c.call(), seconds(c.Seconds), verdict.Others(e.report.Counts.Pods-1))
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

// empty has the evidence for the containers that have ended.
func (e *examination) empty(s *signs) {
	for _, c := range e.report.Empty {
		s.add(true, "%s (%s %s): cgroup %s has no process", c.Pod, c.Container, c.ID, c.Cgroup)
	}
}

// dead finds too many containers that have exited, or sandboxes that are not ready.
func (e *examination) dead(s *signs) {
	c := e.report.Counts
	stopped := c.Sandboxes - c.Ready
	if dead := c.Exited + stopped; dead < manyDead && (dead < enoughDead || dead < mostDead*c.Running) {
		return
	}
	var names []string
	for _, p := range e.report.MostDead {
		names = append(names, fmt.Sprintf("%s %d", p.Pod, p.Exited))
	}
	s.add(false, "%d of %d containers have exited and %d of %d sandboxes are not ready, and all are in every list; most in %s",
		c.Exited, c.Containers, stopped, c.Sandboxes, strings.Join(names, ", "))
}

func (e *examination) network(s *signs) {
	if text, unmet := e.report.unmet("NetworkReady"); unmet {
		s.add(true, "the runtime reports that the network is not ready: %s", text)
	} else if n := e.report.Counts.WithoutIP; n > 0 {
		s.add(false, "%d ready sandboxes have no address", n)
	}
}

// waitsForDisk finds a disk on which processes, or the runtime, wait. A full disk is known to the daemon too.
func (e *examination) waitsForDisk(s *signs) {
	if n := &e.report.Node; n.IOPressure != nil && *n.IOPressure >= busyDisk {
		s.add(false, "processes waited for the disk in %.0f %% of the last ten seconds", *n.IOPressure)
	}
	for _, c := range e.report.Calls {
		if c.Method == "ImageFsInfo" && (c.Hung > 0 || c.LongestSecs > slowDisk.Seconds()) {
			s.add(false, "the runtime takes %s to read its filesystem usage", seconds(c.LongestSecs))
		}
	}
}
