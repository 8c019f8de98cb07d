package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// warnAfter is several relist periods of a second: what takes longer is a warning, if it is
	// not worse by then. problemAfter makes it a problem.
	warnAfter    = 3 * time.Second
	problemAfter = 10 * time.Second
	// manyPods that hang at the same time, if they are half of all or none was overtaken by
	// another, mean a slow runtime, not a few hung containers.
	manyPods = 3
)

// Of returns the verdict on a pipeline.
func Of(s pleg.Status) Verdict {
	f := judge(s)
	switch {
	case s.Relist.Success.IsZero():
		return New(f, "waiting for the first list of pods")
	case s.Relist.Pods == 1:
		return New(f, "the node is healthy, its pod answers")
	}
	return New(f, fmt.Sprintf("the node is healthy, its %d pods answer", s.Relist.Pods))
}

func judge(s pleg.Status) []Finding {
	if s.At.IsZero() {
		s.At = time.Now()
	}
	var all []Finding
	for _, find := range []func(pleg.Status) []Finding{lists, hangs, failures} {
		for _, f := range find(s) {
			all = append(all, f.completed(s.At))
		}
	}
	switch {
	case s.Degraded != nil:
		all = append(all, Finding{Cause: Fallback, Severity: Warning, What: plain(s.Degraded)}.completed(s.At))
	case s.Err == nil:
	case !slices.ContainsFunc(all, func(f Finding) bool { return f.Severity == Problem }) && !s.Relist.Success.IsZero():
		all = append(all, Finding{Cause: RuntimeHangs, Severity: Problem, What: plain(s.Err)}.completed(s.At))
	}
	return all
}

// severity returns that of a trouble of this age.
func severity(age time.Duration) Severity {
	if age >= problemAfter {
		return Problem
	}
	return Warning
}

// lists finds lists of all pods that fail, hang or are slow. One trouble has one age: from the
// start of the first list that did not succeed.
func lists(s pleg.Status) []Finding {
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
	f := Finding{Severity: severity(age), Since: since, Attempts: attempts}
	switch {
	case r.Failures > 0 && errors.Is(r.Err, pleg.ErrUnavailable):
		f.Cause, f.Severity, f.What = RuntimeStopped, Problem, "the runtime is stopped"
		if _, why, ok := strings.Cut(plain(r.Err), pleg.ErrUnavailable.Error()+": "); ok {
			f.Detail = ": " + why
		}
	case r.Failures > 0 && (age-time.Duration(r.Failures)*r.Period)/time.Duration(r.Failures) < warnAfter:
		f.Cause, f.What, f.Detail = RuntimeFails, "lists fail", ": "+plain(r.Err)
	case r.Took >= warnAfter && running < max(problemAfter, 2*r.Took):
		f = Finding{Cause: RuntimeSlow, Severity: severity(r.Took), What: "a list of all pods takes " + Span(r.Took)}
	case r.Failures > 0 || running >= warnAfter:
		f.Cause, f.What = RuntimeHangs, callText(r.Call, "the list of all pods")+" hangs"
		if r.Call != nil {
			f.Call = r.Call.Method
		}
	default:
		return nil
	}
	return []Finding{f}
}

// failures finds pods whose inspections fail.
func failures(s pleg.Status) []Finding {
	if len(s.Failed) == 0 || s.At.Sub(s.Failed[0].Since) < warnAfter {
		return nil
	}
	f := failed(s.Failed[0])
	f.Severity, f.Pods = severity(s.At.Sub(f.Since)), len(s.Failed)
	f.Subject += more(f.Pods)
	return []Finding{f}
}

func failed(p pleg.Failed) Finding {
	f := ofPod(p.Namespace, p.Name, p.UID)
	text := plain(p.Err)
	if _, rest, ok := strings.Cut(text, "("+string(p.UID)+"): "); ok { // it begins with the pod
		text = rest
	}
	f.Cause, f.What, f.Since, f.Detail = RuntimeFails, "its inspection fails", p.Since, ": "+text
	return f
}

// ofPod returns a finding about a pod.
func ofPod(namespace, name string, uid pleg.PodUID) Finding {
	f := Finding{Pod: namespace + "/" + name, PodUID: uid, Severity: Problem}
	if name == "" {
		f.Pod = string(uid)
	}
	f.Subject = f.Pod
	return f
}

// more names the pods of a finding after the first.
func more(pods int) string {
	if pods <= 1 {
		return ""
	}
	return " and " + count(pods-1, "more pod")
}

func callText(c *pleg.Call, unknown string) string {
	if c == nil {
		return unknown
	}
	return c.String()
}

// frames are what gRPC adds to the text of an error.
var frames = regexp.MustCompile(`rpc error: code = \w+ desc = |connection error: desc = |"?transport: Error while dialing: |"$`)

// plain returns an error without the frames of gRPC.
func plain(err error) string {
	if err == nil {
		return "no error is known"
	}
	return frames.ReplaceAllString(err.Error(), "")
}
