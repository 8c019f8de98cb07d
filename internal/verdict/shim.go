package verdict

import (
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// certain is the age at which a lost end is a problem: in a storm, a busy runtime reports ends late.
const certain = time.Minute

// Stuck returns the finding of a pod whose shim does not run, or did not report the end of a
// container.
func Stuck(s nodestate.Stuck, now time.Time) Finding {
	f := ofPod(s.Namespace, s.Name, s.UID)
	f.Since, f.Container = s.Since, s.Container
	p := s.Shim
	switch {
	case p == nil:
		f.Cause, f.What = EmptyCgroup, "has a container without a process"
		f.Detail = ": " + s.Container + " has ended, and the runtime calls it running"
		if now.Sub(s.Since) < certain {
			f.Severity, f.Advice = Warning, "look again in a minute, as a busy runtime reports ends late; only then stop the container (crictl -t 1m stop "+string(s.ID)+")"
			return f
		}
		// crictl waits for 2 s by default; CRI-O takes longer for a container without a monitor.
		f.Advice = "delete the pod, or stop the container (crictl -t 1m stop " + string(s.ID) + ")"
		return f
	case p.State == "":
		f.Cause, f.What = HungShim, "has no shim"
		f.Detail = ": it has ended, so that the runtime will not learn when the container ends"
		if p.PID > 0 {
			f.Detail = fmt.Sprintf(": PID %d", p.PID) + strings.TrimPrefix(f.Detail, ": it")
		}
		f.Advice = "delete the pod, which makes a new one; crictl -t 1m stop ID ends a container"
		return f
	}
	f.Cause, f.What, f.Detail = HungShim, "has a hung shim", ": "+stateOf(p)
	f.Advice = fmt.Sprintf("continue it (kill -CONT %d), and find out who stopped it; deleting the pod waits for it", p.PID)
	if p.State == "D" {
		f.Advice = fmt.Sprintf("%s. Or its cgroup is frozen (/proc/%d/cgroup names it): thaw it. Deleting the pod waits for the shim, PID %d", waits, p.PID, p.PID)
	}
	if s.Container != "" {
		f.Detail += "; " + s.Container + " has ended, and the runtime calls it running"
	}
	return f
}

// lostEnds returns the containers whose end the runtime does not know for no visible reason.
func lostEnds(s pleg.Status) (all []nodestate.Stuck) {
	for _, stuck := range nodestate.Of(s.Details).Stuck {
		if stuck.Shim == nil {
			all = append(all, stuck)
		}
	}
	return all
}

// stuck finds pods whose shim does not run, with one finding for each cause.
func (l Limits) stuck(s pleg.Status) (all []Finding) {
	if lost := lostEnds(s); len(lost) >= manyPods {
		all = append(all, Finding{
			Cause: EmptyCgroup, Severity: Warning, Subject: "the runtime", What: "reports no ends", Since: lost[0].Since, AtLeast: l.unwatched(lost[0].Since),
			Detail: fmt.Sprintf(": the processes of %d containers have ended, and the runtime calls them running; the first is %s of %s/%s", len(lost), lost[0].Container, lost[0].Namespace, lost[0].Name),
			Advice: restart, Pod: lost[0].Namespace + "/" + lost[0].Name, PodUID: lost[0].UID, Container: lost[0].Container, Pods: len(lost),
		})
		if s.At.Sub(lost[0].Since) >= certain {
			all[0].Severity = Problem
		}
	}
	for _, cause := range []Cause{HungShim, EmptyCgroup} {
		var of []Finding
		for _, stuck := range nodestate.Of(s.Details).Stuck {
			if stuck.Shim == nil && len(all) > 0 && all[0].Cause == EmptyCgroup {
				continue // the pod is one of many
			}
			if f := Stuck(stuck, s.At); f.Cause == cause {
				f.AtLeast = l.unwatched(f.Since)
				of = append(of, f)
			}
		}
		if len(of) == 0 {
			continue
		}
		pods := make(map[pleg.PodUID]bool)
		for _, f := range of {
			pods[f.PodUID] = true
		}
		first := of[0].and(len(pods) - 1)
		first.Evidence = others(of, func(f *Finding) string { return f.Detail })
		all = append(all, first)
	}
	return all
}
