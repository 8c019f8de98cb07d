package verdict

import "time"

// Silent returns the verdict on a node of which nothing is known. what names the reason. since is
// the time of the node's last event; zero if not known.
func Silent(what string, since time.Time) Verdict {
	f := Finding{Cause: NodeSilent, Severity: Problem, Subject: "the node", What: what, Since: since}
	return New([]Finding{f.Completed(time.Now())}, "")
}
