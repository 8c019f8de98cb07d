package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Limits are the ages at which a call that does not return is a warning, and a problem.
type Limits struct {
	Warning, Problem time.Duration
	// Watched is the time at which the caller began to look at the runtime, if that is not long
	// ago: a call that hangs since then may have hung before.
	Watched time.Time
}

// DefaultLimits are several relist periods of a second.
var DefaultLimits = Limits{Warning: 3 * time.Second, Problem: 5 * time.Second}

// manyPods or more pods that hang at the same time mean a slow runtime, not a few hung containers: if
// they are half of all pods, no inspection was overtaken, or the lists are slow too.
const manyPods = 3

// Of returns the verdict on a pipeline, with [DefaultLimits].
func Of(s pleg.Status) Verdict { return DefaultLimits.Judge(s) }

// Judge returns the verdict on a pipeline.
func (l Limits) Judge(s pleg.Status) Verdict {
	f := l.Findings(s)
	switch {
	case s.Relist.Success.IsZero():
		return New(f, "waiting for the first list of pods")
	case s.Relist.Pods == 0:
		return New(f, "the node is healthy, it has no pods")
	case s.Waiting >= s.Relist.Pods: // no pod has answered yet
		return New(f, "waiting for the statuses of all pods")
	case s.Relist.Pods == 1:
		return New(f, "the node is healthy, its pod answers")
	}
	return New(f, fmt.Sprintf("the node is healthy, its %d pods answer", s.Relist.Pods))
}

// Findings returns the causes that fit the status of a pipeline.
func (l Limits) Findings(s pleg.Status) []Finding {
	if s.At.IsZero() {
		s.At = time.Now()
	}
	var all []Finding
	for _, find := range []func(pleg.Status) []Finding{l.lists, l.stuck, l.hangs, l.failures, l.contradictions, l.slow} {
		for _, f := range find(s) {
			all = append(all, f.advised(s).Completed(s.At))
		}
	}
	if !s.Healthy && s.Err != nil && !s.Relist.Success.IsZero() && !slices.ContainsFunc(all, func(f Finding) bool { return f.Severity == Problem }) {
		all = append(all, Finding{
			Cause: RuntimeHangs, Severity: Problem, Subject: "the node", What: "is not healthy", Since: nodestate.Of(s.Details).Since.Unhealthy, AtLeast: l.unwatched(nodestate.Of(s.Details).Since.Unhealthy), Detail: ": " + Plain(s.Err),
		}.advised(s).Completed(s.At))
	}
	if s.Degraded != nil {
		f := Finding{
			Cause: Fallback, Severity: Problem, Subject: "the runtime", What: "works by a fallback", Since: nodestate.Of(s.Details).Since.Degraded, AtLeast: l.unwatched(nodestate.Of(s.Details).Since.Degraded), Detail: ": " + Plain(s.Degraded),
		}
		if errors.Is(s.Degraded, pleg.ErrListTooLarge) {
			f.Cause, f.Subject, f.What = ListTooLarge, theList, "is too large"
			f.Detail = strings.TrimPrefix(Plain(s.Degraded), "a list is too large")
		}
		all = append(all, f.advised(s).Completed(s.At))
	}
	for _, f := range slices.Concat(l.unread(s), l.fullDisk(s), l.troubles(s)) {
		all = append(all, f.advised(s).Completed(s.At))
	}
	return all
}

func (l Limits) severity(age time.Duration) Severity {
	if age >= l.Problem {
		return Problem
	}
	return Warning
}

// unwatched reports whether nobody watched before a time.
func (l Limits) unwatched(since time.Time) bool {
	return !l.Watched.IsZero() && !since.Before(l.Watched)
}

const theList = "the list of all pods"

// lists finds lists of all pods that fail, hang or are slow. A trouble counts from the start
// of the first list that did not succeed.
func (l Limits) lists(s pleg.Status) []Finding {
	r := s.Relist
	since, running := r.Failing, time.Duration(0)
	if !r.Started.IsZero() {
		running = s.At.Sub(r.Started)
		since = cmp.Or(since, r.Started)
	}
	attempts := r.Failures
	if running > 0 {
		attempts++
	}
	age := s.At.Sub(since)
	f := Finding{Severity: l.severity(age), Since: since, AtLeast: l.unwatched(since), Attempts: attempts}
	switch {
	case r.Failures > 0 && errors.Is(r.Err, pleg.ErrUnavailable):
		f.Cause, f.Severity, f.Subject, f.What = RuntimeStopped, Problem, "the runtime", "is stopped"
		if _, why, ok := strings.Cut(Plain(r.Err), pleg.ErrUnavailable.Error()+": "); ok {
			f.Detail = ": " + why
		}
	case r.Failures > 0 && r.FailedAfter < l.Warning && running < l.Warning:
		f.Cause, f.Subject, f.What, f.Detail = RuntimeFails, theList, "fails", ": "+Plain(r.Err)
	case r.Failures == 0 && l.slowList(r) && running < l.hang(r):
		return nil // slow, as others were
	case r.Failures > 0 || running >= l.Warning:
		f.Cause, f.Subject, f.What = RuntimeHangs, "the runtime", "hangs"
		f = f.in(r.Call)
	default:
		return nil
	}
	if f.Cause != RuntimeFails {
		f = f.WithRuntime(nodestate.Of(s.Details).Process)
	}
	return []Finding{f}
}

// failures finds pods whose inspections fail.
func (l Limits) failures(s pleg.Status) []Finding {
	if len(s.Failed) == 0 || s.At.Sub(s.Failed[0].Since) < l.Warning {
		return nil
	}
	of := make([]Finding, len(s.Failed))
	for n, p := range s.Failed {
		of[n] = Failed(p, s.At)
		of[n].AtLeast = l.unwatched(p.Since)
	}
	first := of[0].and(len(of) - 1)
	first.Severity = l.severity(s.At.Sub(first.Since))
	first.Evidence = others(of, func(f *Finding) string { return " " + f.Complaint(s.At) })
	return []Finding{first}
}

// A contradiction is a finding after contradictionAfter, when at least three inspections have seen it,
// and a problem after contradictionLasts: a runtime that restarts is wrong for some seconds.
const (
	contradictionAfter = 10 * time.Second
	contradictionLasts = time.Minute
)

// contradictions finds pods whose lists and statuses differ.
func (l Limits) contradictions(s pleg.Status) []Finding {
	all := contradicted(s)
	if len(all) == 0 {
		return nil
	}
	first := all[0].and(len(all) - 1)
	first.AtLeast = l.unwatched(first.Since)
	return []Finding{first}
}

// contradicted returns a finding for each of these pods, the longest first.
func contradicted(s pleg.Status) (all []Finding) {
	for _, c := range s.Contradictions {
		age := s.At.Sub(c.Since)
		if age < contradictionAfter || slices.ContainsFunc(all, func(f Finding) bool { return f.PodUID == c.UID }) {
			continue
		}
		f := ofPod(c.Namespace, c.Name, c.UID)
		if age < contradictionLasts {
			f.Severity = Warning
		}
		says := "is " + c.Status.String() + " in its status"
		if c.Missing {
			says = "is missing in its status"
		}
		what := "container " + c.ContainerName
		if c.Sandbox {
			what = "its sandbox"
		}
		f.Cause, f.What, f.Since = Contradiction, "differs in lists and statuses", c.Since
		f.Detail = fmt.Sprintf(": %s is %s in the lists and %s", what, c.Listed, says)
		all = append(all, f)
	}
	return all
}

// slowInspection is far above the time that a busy, healthy runtime takes for one pod.
const slowInspection = time.Second

// slowList reports whether one of the last lists took long.
func (l Limits) slowList(r pleg.RelistStatus) bool {
	return longest(r) > min(l.Warning, max(time.Second, r.Period))
}

// longest is the longest of the last lists: a runtime with too little CPU answers some lists
// quickly.
func longest(r pleg.RelistStatus) time.Duration { return max(r.Took, r.Longest) }

// hang is the age at which a list of a slow runtime hangs.
func (l Limits) hang(r pleg.RelistStatus) time.Duration { return max(l.Problem, 2*longest(r)) }

// slow finds a runtime that answers, but takes long. That is always a warning: the durations of
// calls vary.
func (l Limits) slow(s pleg.Status) []Finding {
	var signs []string
	if s.Relist.Failures == 0 && l.slowList(s.Relist) {
		signs = append(signs, theList+" takes up to "+Span(longest(s.Relist)))
	}
	if s.InspectionTook >= slowInspection {
		signs = append(signs, "half of the inspections take "+Span(s.InspectionTook)+" or longer")
	}
	if signs == nil {
		return nil
	}
	return []Finding{{
		Cause: RuntimeSlow, Severity: Warning, Subject: "the runtime", What: "is slow", Since: nodestate.Of(s.Details).Since.Slow, AtLeast: l.unwatched(nodestate.Of(s.Details).Since.Slow), Detail: ": " + strings.Join(signs, "; "),
	}}
}

// Failed returns the finding of a pod whose inspection fails.
func Failed(p pleg.Failed, now time.Time) Finding {
	f := ofPod(p.Namespace, p.Name, p.UID)
	text := Plain(p.Err)
	if _, rest, ok := strings.Cut(text, "("+string(p.UID)+"): "); ok { // the text begins with the pod
		text = rest
	}
	f.Cause, f.What, f.Since, f.Detail = RuntimeFails, "cannot be inspected", p.Since, ": "+text
	return f.Completed(now)
}

func ofPod(namespace, name string, uid pleg.PodUID) Finding {
	f := Finding{Pod: namespace + "/" + name, PodUID: uid, Severity: Problem}
	if name == "" {
		f.Pod = string(uid)
	}
	f.Subject = f.Pod
	return f
}

// and returns the finding with the number of other pods that have the same problem.
func (f Finding) and(more int) Finding {
	f.Pods = 1 + more
	if more > 0 {
		f.Subject += " and " + Count(more, "more pod")
		f.What = cmp.Or(plural[f.What], f.What)
	}
	return f
}

var plural = map[string]string{
	"differs in lists and statuses": "differ in lists and statuses",
	"hangs":                         "hang", "is slow": "are slow", "has a hung shim": "have hung shims",
	"has no shim": "have no shims", "has a container without a process": "have containers without processes",
	"does not read from the runtime": "do not read from the runtime",
}

// in returns the finding with the call that the runtime does not answer.
func (f Finding) in(c *pleg.Call) Finding {
	if c != nil {
		f.Call, f.Container, f.Detail = c.Method, c.Container, " in "+c.String()
	}
	return f
}

// frames are the texts that gRPC adds to an error; the quotes are around the original text.
var (
	frames = regexp.MustCompile(`rpc error: code = \w+ desc = `)
	quoted = regexp.MustCompile(`connection error: desc = "(?:transport: Error while dialing: )?(.*)"$`)
)

// Plain returns an error without the frames of gRPC.
func Plain(err error) string {
	if err == nil {
		return "no error is known"
	}
	return quoted.ReplaceAllString(frames.ReplaceAllString(err.Error(), ""), "$1")
}
