package doctor

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// judge returns the verdict of the daemon's knowledge and the examination together. failed is why
// the runtime was not watched.
func (e *examination) judge(failed []verdict.Finding) *Report {
	r := e.report
	limits, v := verdict.DefaultLimits, verdict.Verdict{}
	switch {
	case r.Daemon.answers():
		v = limits.Judge(merged(r.Daemon.status, e.seen))
	case e.seen != nil:
		limits.Watched = r.At
		v = limits.Judge(*e.seen)
	}
	all := v.Findings
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
	v = verdict.New(all, v.Good)
	r.Findings, r.Verdict, r.good = v.Findings, view.Printable(v.Text), v.Good
	return r
}

// blameDaemon adds that the daemon does not answer. If the daemon is also the client that does not
// read from the runtime, that is the same trouble.
func (e *examination) blameDaemon(all []verdict.Finding) []verdict.Finding {
	r := e.report
	runtime := ""
	switch {
	case r.Endpoint == "":
		runtime = "; no runtime is at a usual address"
	case len(all) == 0:
		runtime = "; the runtime is healthy"
	}
	f := r.Daemon.finding(runtime).Completed(r.At)
	if r.Endpoint == "" { // the daemon knows where the runtime is
		f.Severity = verdict.Problem
	}
	var clients []nodestate.Unread
	if e.seen != nil {
		clients = nodestate.Of(e.seen.Details).Unread
	}
	unread := slices.IndexFunc(all, func(f verdict.Finding) bool { return f.Cause == verdict.ClientNotReading })
	if unread >= 0 && len(clients) == 1 && clients[0].Client != nil && clients[0].Client.PID == r.Daemon.pid {
		f.Severity, f.Evidence = all[unread].Severity, f.Evidence+"; "+all[unread].Evidence
		f.Summary += ", and the runtime waits for it to read events"
		all = slices.Delete(all, unread, unread+1)
	}
	return slices.Insert(all, 0, f)
}

// merge adds a finding. If one with the same cause exists, only the evidence is added: the daemon's
// summary stays, because it contains the beginning.
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
