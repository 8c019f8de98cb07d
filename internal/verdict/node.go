package verdict

import (
	"fmt"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// unread returns one finding for all clients of the runtime that do not read. Only a client that is
// stopped is a problem: any other may read soon.
func (l Limits) unread(s pleg.Status) []Finding {
	clients := nodestate.Of(s.Details).Unread
	if len(clients) == 0 {
		return nil
	}
	of := make([]Finding, len(clients))
	for n, u := range clients {
		f := Finding{
			Cause: ClientNotReading, Severity: Warning, Subject: "a client", What: "does not read from the runtime",
			Since: u.Since, AtLeast: l.unwatched(u.Since), Rest: fmt.Sprintf("; %d bytes are unread", u.Bytes),
		}
		switch p := u.Client; {
		case process.Stopped(p):
			f.Severity, f.Subject, f.Detail = Problem, p.Name, ": "+stateOf(p)
			f.Advice = fmt.Sprintf("continue it (kill -CONT %d) or end it%s", p.PID, waitsFor)
		case p != nil:
			f.Subject, f.Detail = p.Name, fmt.Sprintf(": PID %d", p.PID)
		}
		of[n] = f
	}
	first := of[0]
	if more := len(of) - 1; more > 0 {
		first.Subject += " and " + Count(more, "more client")
		first.What = plural[first.What]
		first.Evidence = others(of, func(f *Finding) string { return f.Rest })
	}
	return []Finding{first}
}

// fullDisk finds a filesystem that is almost full.
func (l Limits) fullDisk(s pleg.Status) []Finding {
	d := nodestate.Of(s.Details).Disk
	if d == nil {
		return nil
	}
	return []Finding{{
		Cause: Disk, Severity: Problem, Subject: d.Path, What: "is almost full", Since: d.Since, AtLeast: l.unwatched(d.Since),
		Rest: fmt.Sprintf(": %.0f %% of its bytes and %.0f %% of its inodes are available", 100-d.Used, 100-d.Inodes),
	}}
}

// troubles returns the other troubles of the runtime and its node.
func (l Limits) troubles(s pleg.Status) (all []Finding) {
	for _, t := range s.Troubles {
		f := Finding{Cause: Cause(t.Cause), Severity: Warning, Subject: t.Subject, What: t.What, Since: t.Since, AtLeast: l.unwatched(t.Since), Detail: t.Detail}
		if t.Problem {
			f.Severity = Problem
		}
		all = append(all, f)
	}
	return all
}
