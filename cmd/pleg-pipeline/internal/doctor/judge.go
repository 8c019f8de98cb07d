package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The thresholds of the causes.
const (
	// slowStatus is ten times the duration of a status call of a busy, healthy
	// runtime.
	slowStatus = 200 * time.Millisecond
	// manyHung calls, if they are half of all, mean a slow runtime, not a few hung
	// containers.
	manyHung = 3
	// longCall is the duration of a single call that is worth a word.
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

// judge compares the results with the known causes.
func (e *examination) judge() {
	r := e.report
	r.Hung, r.Failed, r.Slowest = r.inspection.hung, r.inspection.failed, slowest(r.inspection.calls)
	slices.SortFunc(r.Hung, func(a, b ItemCall) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.ID, b.ID)) })
	r.Relist.OneByOneSeconds = e.oneByOne()
	found := make(map[Cause]bool)
	for _, find := range []func() *Finding{
		e.unready, e.slow, e.hung, e.failing, e.daemon, e.tooLarge, e.slowContainer, e.empty, e.dead, e.network, e.disk,
	} {
		// A slow runtime is why its calls hang and why its daemon is not healthy.
		f := find()
		if f == nil || found[RuntimeSlow] && slices.Contains([]Cause{HungContainer, SlowContainer, SickDaemon}, f.Cause) {
			continue
		}
		found[f.Cause] = true
		r.Findings = append(r.Findings, *f)
	}
	sortFindings(r.Findings)
}

// sortFindings puts problems first and keeps the order of the causes.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Severity, b.Severity) })
}

// newFinding returns a finding. Without evidence, the summary is the evidence.
func newFinding(cause Cause, severity Severity, summary, evidence, advice string) *Finding {
	return &Finding{cause, severity, summary, cmp.Or(evidence, summary), advice}
}

// oneByOne estimates the time of a serial relist in seconds, from the calls that were
// made.
func (e *examination) oneByOne() float64 {
	c := e.report.Counts
	if c.Inspected == 0 {
		return e.report.Relist.ListSeconds
	}
	each := e.report.inspection.total.Seconds() / float64(c.Inspected)
	return e.report.Relist.ListSeconds + each*float64(c.Sandboxes+c.Containers)
}

// condition returns nil if the runtime does not report the condition.
func (e *examination) condition(name string) *Condition {
	i := slices.IndexFunc(e.report.Conditions, func(c Condition) bool { return c.Type == name })
	if i < 0 {
		return nil
	}
	return &e.report.Conditions[i]
}

func (e *examination) unready() *Finding {
	c := e.condition("RuntimeReady")
	if c == nil || c.Status {
		return nil
	}
	return newFinding(RuntimeUnready, Problem, "the runtime reports that it is not ready: "+strings.TrimSpace(c.Reason+" "+c.Message), "", restart)
}

// slow finds a slow runtime. A few hung calls alone do not make it slow.
func (e *examination) slow() *Finding {
	var evidence []string
	severity := Warning
	for _, c := range e.calls.summary() {
		switch c.Method {
		case "ListPodSandbox", "ListContainers":
			if c.Hung > 0 {
				evidence, severity = append(evidence, fmt.Sprintf("%s does not answer within %v", c.Method, e.CallTimeout)), Problem
			} else if c.LongestSecs > e.Period.Seconds() {
				evidence, severity = append(evidence, fmt.Sprintf("%s takes %s, longer than the period of %v", c.Method, seconds(c.LongestSecs), e.Period)), Problem
			}
		case "Version", "Status":
			if c.LongestSecs > slowStatus.Seconds()*5 {
				evidence, severity = append(evidence, fmt.Sprintf("%s takes %s", c.Method, seconds(c.LongestSecs))), Problem
			}
		case "PodSandboxStatus", "ContainerStatus":
			if c.Hung >= manyHung && 2*c.Hung >= c.Count {
				evidence, severity = append(evidence, fmt.Sprintf("%d of %d %s calls do not return within %v", c.Hung, c.Count, c.Method, e.CallTimeout)), Problem
			} else if c.Count >= manyHung && c.MedianSeconds > slowStatus.Seconds() {
				evidence = append(evidence, fmt.Sprintf("half of the %s calls take %s or longer", c.Method, seconds(c.MedianSeconds)))
			}
		}
	}
	if one := e.report.Relist.OneByOneSeconds; one > e.Threshold.Seconds() && len(evidence) > 0 {
		evidence, severity = append(evidence, fmt.Sprintf("if all pods changed at once, a kubelet would need %s, longer than its threshold of %v", seconds(one), e.Threshold)), Problem
	}
	if len(evidence) == 0 {
		return nil
	}
	return newFinding(RuntimeSlow, severity, evidence[0], strings.Join(evidence, "; "), "find what the runtime waits for: CPU and disk of this node, its log, the number of containers; "+restart)
}

func (e *examination) tooLarge() *Finding {
	for _, l := range e.report.Lists {
		if !l.Portioned && float64(l.Bytes) < fullList*float64(l.LimitBytes) {
			continue
		}
		severity, text := Warning, fmt.Sprintf("%s has %s, %.0f %% of the limit of %s", l.Method, size(l.Bytes), 100*float64(l.Bytes)/float64(l.LimitBytes), size(l.LimitBytes))
		if l.Portioned || l.Bytes >= l.LimitBytes {
			severity, text = Problem, fmt.Sprintf("%s exceeds the %s that a kubelet accepts, so no list succeeds (known size: %s)", l.Method, size(l.LimitBytes), size(l.Bytes))
		}
		var names []string
		for _, p := range e.report.Largest {
			names = append(names, fmt.Sprintf("%s %s (annotations %s)", p.Pod, size(p.Bytes), size(p.Annotations)))
		}
		return newFinding(ListTooLarge, severity, text, text+"; the largest pods: "+strings.Join(names, ", "),
			"reduce the annotations of the largest pods ("+strings.Join(names, ", ")+"), and remove dead containers and sandboxes")
	}
	return nil
}

func (e *examination) dead() *Finding {
	c := e.report.Counts
	if c.Exited < manyDead && (c.Exited < enoughDead || c.Exited < mostDead*c.Running) {
		return nil
	}
	var names []string
	for _, p := range e.report.MostDead {
		names = append(names, fmt.Sprintf("%s %d", p.Pod, p.Exited))
	}
	return newFinding(
		DeadContainers, Warning,
		fmt.Sprintf("%d of %d containers have exited and are in every list; most in %s", c.Exited, c.Containers, strings.Join(names, ", ")), "",
		"remove them (crictl rm $(crictl ps -aq --state exited)); find out why the kubelet's garbage collection does not (--maximum-dead-containers, pods that are never deleted)",
	)
}

func (e *examination) network() *Finding {
	const advice = "read the log of the network plugin; look at /etc/cni/net.d and whether its daemon runs on this node"
	if c := e.condition("NetworkReady"); c != nil && !c.Status {
		return newFinding(NetworkPlugin, Problem, "the runtime reports that the network is not ready: "+strings.TrimSpace(c.Reason+" "+c.Message), "", advice)
	}
	if n := e.report.Counts.WithoutIP; n > 0 {
		return newFinding(NetworkPlugin, Warning, fmt.Sprintf("%d ready sandboxes have no address", n), "", advice)
	}
	return nil
}

func (e *examination) disk() *Finding {
	n := &e.report.Node
	var evidence []string
	severity := Warning
	if n.UsedPercent != nil && *n.UsedPercent >= fullDisk {
		evidence, severity = append(evidence, fmt.Sprintf("%s is %.0f %% full", n.ImageFilesystem, *n.UsedPercent)), Problem
	}
	if n.InodesPercent != nil && *n.InodesPercent >= fullDisk {
		evidence, severity = append(evidence, fmt.Sprintf("%.0f %% of the inodes of %s are in use", *n.InodesPercent, n.ImageFilesystem)), Problem
	}
	if n.IOPressure != nil && *n.IOPressure >= busyDisk {
		evidence = append(evidence, fmt.Sprintf("processes waited for the disk in %.0f %% of the last ten seconds", *n.IOPressure))
	}
	for _, c := range e.calls.summary() {
		if c.Method == "ImageFsInfo" && (c.Hung > 0 || c.LongestSecs > slowDisk.Seconds()) {
			evidence = append(evidence, fmt.Sprintf("the runtime takes %s to read its filesystem usage", seconds(c.LongestSecs)))
		}
	}
	if len(evidence) == 0 {
		return nil
	}
	return newFinding(Disk, severity, evidence[0], strings.Join(evidence, "; "), "free space (crictl rmi --prune), find what writes (iotop, pidstat -d), look for disk errors (dmesg)")
}

// readPressure reads the kernel's pressure figures, if it has them.
func (e *examination) readPressure() {
	n := &e.report.Node
	n.IOPressure = pressure(e.Pressure, "io")
	n.CPUPressure = pressure(e.Pressure, "cpu")
	n.MemoryPressure = pressure(e.Pressure, "memory")
}

// pressure returns avg10 of the line "some" of a file such as
// "some avg10=1.23 avg60=0.50 avg300=0.10 total=123".
func pressure(files fs.FS, name string) *float64 {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "some" {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimPrefix(fields[1], "avg10="), 64); err == nil {
			return &value
		}
	}
	return nil
}

// imageFilesystem finds the filesystem of the images and its usage. The runtime reads
// the disk for the answer, so a slow disk shows in the duration of the call.
func (e *examination) imageFilesystem(ctx context.Context) {
	_ = e.call(ctx, "ImageFsInfo", func(ctx context.Context) error {
		answer, err := e.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		if err != nil {
			return err
		}
		for _, f := range answer.GetImageFilesystems() {
			path := f.GetFsId().GetMountpoint()
			used, inodes, err := e.Usage(path)
			if path == "" || err != nil {
				continue
			}
			n := &e.report.Node
			n.ImageFilesystem, n.UsedPercent, n.InodesPercent = path, &used, &inodes
		}
		return nil
	})
}

// Usage returns how many percent of the bytes and inodes of the filesystem of path are
// in use, for [Options]. Without inodes, inodes is 0. The error is that of statfs.
func Usage(path string) (used, inodes float64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	percent := func(total, free uint64) float64 {
		if total == 0 {
			return 0
		}
		return 100 * float64(total-free) / float64(total)
	}
	return percent(st.Blocks, st.Bavail), percent(st.Files, st.Ffree), nil
}
