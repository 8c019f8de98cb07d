package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The states of a pod. The first four are about its inspections.
const (
	Hung   = "hung"   // or the pod's shim hangs
	Silent = "silent" // nobody publishes for its node
	Slow   = "slow"
	Failed = "failed"
	// Unknown is the state of a pod without a sandbox, or whose lists and statuses differ.
	Unknown = "unknown"
	// NotReady means that the newest sandbox is not ready, or that a container does not run.
	NotReady = "notready"
	// Ready is as in kubectl, without probes, which a runtime does not know: the
	// sandbox is ready, and all containers run.
	Ready = "ready"
)

// states lists every state, the worst first.
var states = []struct {
	name     string
	severity verdict.Severity
}{
	{Hung, verdict.Problem},
	{Silent, verdict.Problem},
	{Failed, verdict.Problem},
	{Slow, verdict.Warning},
	{Unknown, verdict.Warning},
	{NotReady, verdict.Warning},
	{Ready, verdict.OK},
}

// States returns the names of all states, the worst first.
func States() []string {
	var names []string
	for _, s := range states {
		names = append(names, s.name)
	}
	return names
}

// stateOf contains the states of pods with a finding. With any other cause, an inspection has failed.
var stateOf = map[verdict.Cause]string{
	verdict.HungContainer: Hung,
	verdict.HungShim:      Hung,
	verdict.EmptyCgroup:   Hung,
	verdict.NodeSilent:    Silent,
	verdict.SlowContainer: Slow,
	verdict.Contradiction: Unknown,
}

// judge sets the state of the pod, and its severity.
func (p *Pod) judge() {
	s := p.sandbox()
	switch {
	case p.Finding != nil:
		p.State = cmp.Or(stateOf[p.Finding.Cause], Failed)
		if p.State == Hung && p.Finding.Severity == verdict.Warning { // the hang may be over soon
			p.State = Slow
		}
	case s == nil:
		p.State = Unknown
	case s.State == Ready && p.Total > 0 && p.Running == p.Total:
		p.State = Ready
	default:
		p.State = NotReady
	}
	p.Severity = states[p.rank()].severity
	if p.Finding != nil && p.Finding.Severity == verdict.Problem {
		p.Severity = verdict.Problem
	}
}

// SetFinding sets the problem of the pod's inspections.
func (p *Pod) SetFinding(f verdict.Finding) {
	p.Finding, p.Stale = &f, !p.Uninspected
	p.judge()
}

// rank orders states, the worst first.
func (p *Pod) rank() int { return slices.Index(States(), p.State) }

// CompareSeverity compares two pods so that the worst and longest trouble comes first.
func CompareSeverity(a, b *Pod) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.Finding == nil || b.Finding == nil {
		return c
	}
	return a.Finding.Since.Compare(b.Finding.Since)
}

// Newest returns the newest container of each name, in the order of p, without those that ended for
// good. A running container is the newest, even if the runtime has forgotten when it was created
// (containerd#3873).
func (p *Pod) Newest() []Container {
	index := make(map[string]int)
	var newest []Container
	for _, c := range p.Containers {
		i, ok := index[c.Name]
		switch {
		case !ok:
			index[c.Name] = len(newest)
			newest = append(newest, c)
		case newer(c.State == running, newest[i].State == running, c.Attempt, newest[i].Attempt, c.CreatedAt, newest[i].CreatedAt):
			newest[i] = c
		}
	}
	return slices.DeleteFunc(newest, p.isDone)
}

const (
	// startsWithin is the longest time between the creation of the first and the last container of
	// a sandbox: a container that is created later is ephemeral, or has run again.
	startsWithin = time.Minute
	// restartsWithin is the longest time until a kubelet starts a container again that has ended.
	restartsWithin = 6 * time.Minute
)

// isDone reports whether a container has ended for good: an init container or an ephemeral one. The
// runtime does not know which containers these are: the other containers of the sandbox show it.
func (p *Pod) isDone(c Container) bool {
	if c.ExitCode == nil || c.FinishedAt == nil || c.CreatedAt == nil {
		return false
	}
	later := make(map[string]bool) // whether all containers of a name were created after its end
	for _, other := range p.Containers {
		if other.Name == c.Name || !p.shareSandbox(&c, &other) {
			continue
		}
		before, ok := later[other.Name]
		later[other.Name] = (before || !ok) && other.CreatedAt != nil && !other.CreatedAt.Before(*c.FinishedAt)
		if other.State == running && other.CreatedAt != nil && c.CreatedAt.Sub(*other.CreatedAt) > startsWithin &&
			(c.Attempt == 0 || *c.ExitCode == 0 && p.CurrentAsOf.Sub(*c.FinishedAt) > restartsWithin) {
			return true
		}
	}
	return *c.ExitCode == 0 && slices.Contains(slices.Collect(maps.Values(later)), true)
}

// shareSandbox reports whether b was created in the same sandbox as a; true if its time is not
// known. That of a is.
func (p *Pod) shareSandbox(a, b *Container) bool {
	return b.CreatedAt == nil || !slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool {
		return s.CreatedAt != nil && a.CreatedAt.Before(*s.CreatedAt) != b.CreatedAt.Before(*s.CreatedAt)
	})
}

var running = pleg.StateRunning.String()
