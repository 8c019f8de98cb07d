package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pods returns the trouble of each pod, with the time of the first attempt; a pod without trouble
// is missing.
func Pods(s pleg.Status) map[pleg.PodUID]Finding {
	found := make(map[pleg.PodUID]Finding)
	for _, f := range contradicted(s) {
		found[f.PodUID] = f.advised(s).Completed(s.At)
	}
	for _, p := range s.Failed {
		found[p.UID] = Failed(p, s.At).advised(s)
	}
	for _, f := range DefaultLimits.pods(s) {
		found[f.PodUID] = f.advised(s).Completed(s.At)
	}
	many := len(lostEnds(s)) >= manyPods                                   // many lost ends are one trouble of the runtime
	for _, stuck := range slices.Backward(nodestate.Of(s.Details).Stuck) { // of several, the longest
		if stuck.Shim != nil || !many {
			found[stuck.UID] = Stuck(stuck, s.At).Completed(s.At)
		}
	}
	return found
}

// pods returns the pods whose inspections hang or are slow: hung ones first, then the longest. All
// attempts in a row are one trouble.
func (l Limits) pods(s pleg.Status) []Finding {
	byPod := make(map[pleg.PodUID]Finding, len(s.Quarantined)+len(s.Overdue))
	for _, q := range s.Quarantined {
		f := ofPod(q.Namespace, q.Name, q.UID)
		f.Cause, f.What, f.Since, f.Attempts, f.NextTry, f.AtLeast = HungContainer, "hangs", q.Since, q.Hung, q.NextTry, l.unwatched(q.Since)
		byPod[q.UID] = f.in(q.Call)
	}
	for _, i := range s.Overdue {
		f, again := byPod[i.UID]
		if !again {
			f = ofPod(i.Namespace, i.Name, i.UID)
			f.Cause, f.What, f.Since, f.Severity = SlowContainer, "is slow", i.Started, Warning
			f.AtLeast = l.unwatched(i.Started)
			if i.Hung || s.At.Sub(i.Started) >= l.Problem {
				f.Cause, f.What, f.Severity = HungContainer, "hangs", Problem
			}
		}
		f.Attempts++
		f.NextTry = time.Time{}
		byPod[i.UID] = f.in(i.Call)
	}
	return slices.SortedFunc(maps.Values(byPod), func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Severity], rank[b.Severity]), a.Since.Compare(b.Since), cmp.Compare(a.Pod, b.Pod))
	})
}

// maxNamed is the number of pods that a finding names, including the first.
const maxNamed = 3

// others is the evidence of a finding about several pods: the problems of all but the first; "" if there is one.
func others(of []Finding, complaint func(*Finding) string) string {
	var texts []string
	for i := range of[:min(len(of), maxNamed)] {
		texts = append(texts, of[i].Subject+complaint(&of[i]))
	}
	text := strings.Join(texts[1:], ", ")
	if more := len(of) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// hangs finds pods whose inspections hang or are slow, or a runtime that answers for hardly any
// pod.
func (l Limits) hangs(s pleg.Status) []Finding {
	late := slices.DeleteFunc(l.pods(s), func(f Finding) bool {
		age := s.At.Sub(f.Since)
		return age < l.Warning || isSlow(s) && !overtaken(s, f.PodUID) && age < slowFactor*s.InspectionTook
	})
	if len(late) == 0 {
		return nil
	}
	first := late[0]
	same := func(f Finding) bool { return f.Cause == first.Cause }
	if len(late) >= manyPods && (!overtaken(s, "") || 2*len(late) >= s.Relist.Pods || l.slowList(s.Relist)) {
		return []Finding{{
			Cause: RuntimeSlow, Severity: l.severity(s.At.Sub(first.Since)), Since: first.Since, AtLeast: first.AtLeast, Attempts: first.Attempts,
			Subject: "the runtime", What: "does not answer inspections",
			Rest: fmt.Sprintf(": %d of %d pods wait, the longest is %s%s", len(late), max(len(late), s.Relist.Pods), first.Subject, first.Detail),
			Pod:  first.Pod, PodUID: first.PodUID, Container: first.Container, Call: first.Call, Pods: len(late),
		}}
	}
	rest := slices.IndexFunc(late, func(f Finding) bool { return !same(f) })
	if rest < 0 {
		rest = len(late)
	}
	first = first.and(rest - 1)
	first.Evidence = others(late[:rest], func(f *Finding) string { return " " + f.Complaint(s.At) })
	first.Rest = Others(s.Relist.Pods - len(late))
	return []Finding{first}
}

// An inspection of a slow runtime may take slowFactor times the usual duration before it counts.
const slowFactor = 4

func isSlow(s pleg.Status) bool { return s.InspectionTook >= slowInspection }

// overtaken reports whether the inspection of the pod hangs although inspections of others ended.
// If uid is empty, it looks for any such pod.
func overtaken(s pleg.Status, uid pleg.PodUID) bool {
	is := func(of pleg.PodUID) bool { return uid == "" || uid == of }
	return slices.ContainsFunc(s.Quarantined, func(q pleg.Quarantined) bool { return is(q.UID) }) ||
		slices.ContainsFunc(s.Overdue, func(i pleg.Inspection) bool { return i.Hung && is(i.UID) })
}

// Others describes the pods that are not in a finding.
func Others(pods int) string {
	switch {
	case pods <= 0:
		return ""
	case pods == 1:
		return "; the other pod answers"
	}
	return fmt.Sprintf("; the other %d pods answer", pods)
}
