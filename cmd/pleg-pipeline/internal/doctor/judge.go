package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// judge compares what the examination and the daemon have seen with the known causes. failed is
// why the runtime was not examined.
func (e *examination) judge(failed []verdict.Finding) *Report {
	r := e.report
	var all []verdict.Finding
	if r.Runtime != "" || r.Daemon.answers() {
		limits := verdict.DefaultLimits
		if r.Runtime != "" {
			limits = verdict.Limits{Warning: min(limits.Warning, e.CallTimeout), Problem: min(limits.Problem, e.CallTimeout), Watched: r.At}
		}
		all = limits.Findings(e.seen())
		e.addCalls(all)
	}
	if r.Runtime != "" {
		failed = e.runChecks()
	}
	for _, f := range failed {
		if f.Cause == verdict.RuntimeStopped && r.Daemon.answers() && r.Daemon.connected() {
			f.Cause, f.Severity, f.Advice = verdict.Fallback, verdict.Warning, "" // the daemon knows if its socket is gone
			f.Summary, f.What = "the daemon reaches the runtime, this command does not: "+f.Evidence, ""
		}
		if f.Cause == verdict.NoPermission && r.Daemon.answers() {
			f.Severity = verdict.Warning // the daemon knows more
		}
		all = merge(all, f)
	}
	if r.Daemon != nil && !r.Daemon.answers() {
		all = e.blameDaemon(all)
	}
	v := verdict.New(all, r.good())
	r.Findings, r.Verdict = v.Findings, view.Printable(v.Text)
	return r
}

// blameDaemon adds that the daemon does not answer. If it is the client that does not read what the
// runtime sends it, that is the same trouble.
func (e *examination) blameDaemon(all []verdict.Finding) []verdict.Finding {
	r := e.report
	runtime := ""
	if len(all) == 0 {
		runtime = "; the runtime is well"
	}
	f := r.Daemon.finding(runtime).Completed(r.At)
	if r.Endpoint == "" { // the daemon knows where the runtime is
		f.Severity = verdict.Problem
	}
	unread := slices.IndexFunc(all, func(f verdict.Finding) bool { return f.Cause == verdict.ClientNotReading })
	if unread >= 0 && len(e.unread) == 1 && e.unread[0].Client != nil && e.unread[0].Client.PID == r.Daemon.pid {
		f.Severity, f.Evidence = all[unread].Severity, f.Evidence+"; "+all[unread].Evidence
		f.Summary += ", and the runtime waits for it to read events"
		all = slices.Delete(all, unread, unread+1)
	}
	return slices.Insert(all, 0, f)
}

// merge adds a finding. A finding with the same cause gets its evidence: the daemon knows since when,
// so that its summary stays.
func merge(all []verdict.Finding, f verdict.Finding) []verdict.Finding {
	f = f.Completed(time.Now())
	i := slices.IndexFunc(all, func(have verdict.Finding) bool { return have.Cause == f.Cause })
	if i < 0 {
		return append(all, f)
	}
	all[i].Evidence += "; " + f.Evidence
	if f.Severity == verdict.Problem {
		all[i].Severity = verdict.Problem
	}
	return all
}

// seen returns the status of the daemon, or an empty status, with what the examination found: the
// calls that hang. If all calls were answered, it leaves out the pods that the daemon waits to try
// again.
func (e *examination) seen() pleg.Status {
	r := e.report
	now := time.Now()
	s := pleg.Status{At: now, Healthy: true, Relist: pleg.RelistStatus{Success: now}}
	if r.Daemon.answers() {
		s = r.Daemon.status
	}
	if r.Runtime == "" {
		return s
	}
	hung, failed, waiting := podsOf(r.Hung), podsOf(r.Failed), make(map[pleg.PodUID]bool)
	for _, i := range s.Overdue {
		waiting[i.UID] = true
	}
	s.Relist.Pods = len(podsOf(e.likeHung()))
	if c := r.Counts; c.Inspected >= c.Sandboxes+c.Containers {
		s.Relist.Pods = c.Pods
		s.Quarantined = slices.DeleteFunc(slices.Clone(s.Quarantined), func(q pleg.Quarantined) bool { return !waiting[q.UID] && !hung[q.UID] })
		s.Failed = slices.DeleteFunc(slices.Clone(s.Failed), func(f pleg.Failed) bool { return !failed[f.UID] })
	}
	for _, q := range s.Quarantined {
		waiting[q.UID] = true
	}
	hangs := slices.DeleteFunc(slices.Clone(r.Hung), func(i ItemCall) bool {
		return slices.ContainsFunc(r.Calls, func(c Call) bool { return c.Method == i.Method && e.late(c) })
	})
	for _, c := range slices.SortedFunc(slices.Values(hangs), func(a, b ItemCall) int { return a.began.Compare(b.began) }) {
		if uid := pleg.PodUID(c.PodUID); !waiting[uid] {
			waiting[uid] = true
			namespace, name, _ := strings.Cut(c.Pod, "/")
			s.Overdue = append(s.Overdue, pleg.Inspection{UID: uid, Namespace: namespace, Name: name, Started: c.began, Hung: true, Call: c.call()})
		}
	}
	for _, c := range e.calls {
		if c.hangs() && strings.HasPrefix(c.Method, "List") && (s.Relist.Started.IsZero() || c.began.Before(s.Relist.Started)) {
			s.Relist.Started, s.Relist.Call = c.began, c.call()
		}
	}
	for _, found := range e.stuck {
		if !slices.ContainsFunc(s.Stuck, func(p pleg.Stuck) bool { return p.UID == found.UID }) {
			s.Stuck = append(s.Stuck, found)
		}
	}
	if s.Disk == nil {
		s.Disk = e.disk
	}
	if len(e.unread) > 0 { // which names a process that the daemon may not see
		if len(s.Unread) > 0 {
			e.unread[0].Since = s.Unread[0].Since
		}
		s.Unread = e.unread
	}
	return s
}

func podsOf(calls []ItemCall) map[pleg.PodUID]bool {
	pods := make(map[pleg.PodUID]bool)
	for _, c := range calls {
		pods[pleg.PodUID(c.PodUID)] = true
	}
	return pods
}

// likeHung returns the status calls of a kind that hangs.
func (e *examination) likeHung() (all []ItemCall) {
	for _, c := range e.calls {
		if c.ID != "" && slices.ContainsFunc(e.report.Hung, func(h ItemCall) bool { return h.Method == c.Method }) {
			all = append(all, c.ItemCall)
		}
	}
	return all
}

// addCalls adds the calls that hang to the evidence.
func (e *examination) addCalls(all []verdict.Finding) {
	add := func(causes []verdict.Cause, text string) {
		if i := slices.IndexFunc(all, func(f verdict.Finding) bool { return slices.Contains(causes, f.Cause) }); i >= 0 {
			all[i].Evidence += "; " + text
		}
	}
	if hung := e.report.Hung; len(hung) > 0 {
		var calls []string
		for _, h := range hung[:min(len(hung), top)] {
			calls = append(calls, fmt.Sprintf("%s %s (%s %s)", h.Pod, cmp.Or(h.Container, "sandbox"), h.Method, h.ID))
		}
		if more := len(hung) - len(calls); more > 0 {
			calls = append(calls, fmt.Sprintf("and %d more", more))
		}
		add([]verdict.Cause{verdict.HungContainer, verdict.RuntimeSlow}, fmt.Sprintf("%d of %d status calls do not return within %v: %s",
			len(hung), e.report.Counts.Inspected, e.CallTimeout, strings.Join(calls, ", ")))
	}
	for _, c := range e.report.Calls {
		if c.Hung > 0 {
			add([]verdict.Cause{verdict.RuntimeHangs, verdict.RuntimeSlow}, fmt.Sprintf("%d of %d %s calls do not return within %v", c.Hung, c.Count, c.Method, e.CallTimeout))
		}
	}
}
