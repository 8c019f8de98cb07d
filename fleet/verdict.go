package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// Verdict says what is wrong on a node.
type Verdict = verdict.Verdict

// Finding is one cause of a [Verdict].
type Finding = verdict.Finding

const (
	// beatPeriod is how often an agent looks for a new verdict, and statusTimeout how long it
	// waits for the status.
	beatPeriod    = 2 * time.Second
	statusTimeout = time.Second
	// maxVerdict is the length of the texts of a verdict in bytes. A verdict with more is
	// published without its findings.
	maxVerdict = 16 << 10
)

// examine returns what is wrong on the node; nil if nobody says.
func (p *Publisher) examine(ctx context.Context) *Verdict {
	if p.o.Health == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := p.o.Health(ctx)
	if err != nil {
		v := verdict.Silent("does not answer the agent: "+err.Error(), time.Time{})
		return &v
	}
	v := verdict.Of(status)
	size := 0
	for _, f := range v.Findings {
		size += len(f.Subject) + len(f.Pod) + len(f.Container) + len(f.Detail) + len(f.Evidence) + len(f.Summary)
	}
	if size > maxVerdict {
		v = Verdict{Severity: v.Severity, Text: v.Text[:min(len(v.Text), maxText)]}
	}
	return &v
}

// sameVerdict reports whether two verdicts have the same causes, of the same pods.
func sameVerdict(a, b *Verdict) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Severity == b.Severity && slices.EqualFunc(a.Findings, b.Findings, func(a, b Finding) bool {
		return a.Cause == b.Cause && a.Severity == b.Severity && a.PodUID == b.PodUID && a.Call == b.Call
	})
}

// beat renews the lease if that is due, or if the verdict is another one, and does what is due
// then.
func (p *Publisher) beat(ctx context.Context) error {
	now := p.examine(ctx)
	if sameVerdict(now, p.verdict) && time.Since(p.renewed) < min(LeaseTTL/3, p.o.StateTTL/4) {
		return nil
	}
	p.verdict = now
	if err := p.renewLease(ctx); err != nil {
		return err
	}
	p.accepted(ctx)
	p.forgetMarks()
	return p.refresh(ctx)
}

// silent returns the verdict on a node that nobody publishes for.
func (s *server) silent(ctx context.Context, cluster, node string) Verdict {
	var since time.Time
	if m, err := s.message(ctx, s.nameOf(EventStream), wanted{Last: s.eventSubject(cluster, node)}); err == nil && m != nil {
		since = m.Time
	}
	return verdict.Silent("has no agent and has published nothing", since)
}
