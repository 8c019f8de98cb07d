package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Verdict says what is wrong on a node.
type Verdict = verdict.Verdict

// Finding is one cause of a [Verdict].
type Finding = verdict.Finding

// agentState is the value of a node in [AgentBucket].
type agentState struct {
	// Layout is the layout of the stream; the first layout has none.
	Layout int `json:"layout"`
	// Agent names the process that publishes.
	Agent string `json:"agent"`
	// CurrentAsOf is the time before the last list whose changes are all published.
	CurrentAsOf time.Time `json:"currentAsOf,omitzero"`
	health
}

// health is what an agent says of its node.
type health struct {
	// Verdict is what is wrong on the node; nil if the agent does not say.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Pods are the pods whose inspections hang, are slow or fail.
	Pods []Finding `json:"pods,omitempty"`
}

const layout = 2

const (
	// beatPeriod is how often an agent looks for a new verdict, and statusTimeout how long it
	// waits for the status.
	beatPeriod    = time.Second
	statusTimeout = time.Second
	// maxHealth is the size of what an agent says of its node. If it is larger, the findings are left out.
	maxHealth = 64 << 10
	// maxPods bounds the findings of pods.
	maxPods = 100
)

// examine returns what is wrong on the node; nothing if there is no Health.
func (p *Publisher) examine(ctx context.Context) (h health) {
	if p.o.Health == nil {
		return h
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := p.o.Health(ctx)
	if err != nil {
		return health{Verdict: new(verdict.Silent("does not answer the agent: "+err.Error(), time.Time{}))}
	}
	h.Verdict = new(verdict.Of(status))
	for _, f := range verdict.Pods(status) {
		f.Evidence, f.Advice = "", ""
		h.Pods = append(h.Pods, f)
	}
	slices.SortFunc(h.Pods, func(a, b Finding) int { return a.Since.Compare(b.Since) })
	h.Pods = h.Pods[:min(maxPods, len(h.Pods))]
	if text, err := json.Marshal(h); err != nil || len(text) > maxHealth {
		h = health{Verdict: &Verdict{Severity: h.Verdict.Severity, Text: h.Verdict.Text[:min(len(h.Verdict.Text), maxText)]}}
	}
	return h
}

// causes returns what distinguishes two healths, without their times and numbers.
func (h health) causes() (all []string) {
	if h.Verdict == nil {
		return nil
	}
	all = append(all, string(h.Verdict.Severity))
	for _, f := range slices.Concat(h.Verdict.Findings, h.Pods) {
		all = append(all, fmt.Sprint(f.Cause, f.Severity, f.PodUID, f.Call))
	}
	slices.Sort(all)
	return all
}

// of returns what an agent says of a pod; nil for nothing.
func (h health) of(uid pleg.PodUID) *Finding {
	if i := slices.IndexFunc(h.Pods, func(f Finding) bool { return f.PodUID == uid }); i >= 0 {
		return &h.Pods[i]
	}
	return nil
}

// takeLease writes this agent into AgentBucket, and what it says of its node. The first time it replaces another
// agent, so that an agent which restarts does not wait for the lease of its dead self. Later the other agent is
// the newer of the two, and this agent waits until the lease of the other has expired.
func (p *Publisher) takeLease(ctx context.Context, h health) error {
	// The leader is asked: a replica may still have the lease of before, or none.
	m, err := p.agents.message(ctx, wanted{Last: p.lease})
	if err != nil {
		return err
	}
	var holder agentState
	if json.Unmarshal(m.Data, &holder) == nil && holder.Agent != p.agent && p.owned { // what cannot be read is replaced
		p.fence = 0
		return fmt.Errorf("%w: %s", errHeld, holder.Agent)
	}
	value, err := json.Marshal(agentState{layout, p.agent, p.currentAsOf, h})
	if err == nil {
		_, err = p.js.Publish(ctx, p.lease, value, jetstream.WithExpectLastSequencePerSubject(m.Sequence))
	}
	if err != nil {
		return fmt.Errorf("%w: %s", errLease, explain(p.o.Conn, err).Error()) // that it is refused says nothing of the stream
	}
	p.health, p.renewed = h, time.Now()
	p.loop.Acknowledged()
	return nil
}

// beat renews the lease, if that is due or the verdict on the node has changed, and publishes old
// states again.
func (p *Publisher) beat(ctx context.Context) error {
	now := p.examine(ctx)
	if time.Since(p.renewed) < LeaseTTL/3 && slices.Equal(now.causes(), p.causes()) {
		return p.refresh(ctx)
	}
	if err := p.flush(ctx); err != nil { // currentAsOf is behind what waits
		return err
	}
	// Somebody may have removed the messages of the node, which no answer shows while it is quiet.
	info, err := p.info(ctx, jetstream.WithSubjectFilter(p.node))
	if err == nil && len(info.State.Subjects) == 0 {
		p.fence, err = 0, errLost
	}
	if err == nil {
		err = p.takeLease(ctx, now)
	}
	if err != nil {
		return err
	}
	p.works(ctx)
	return p.refresh(ctx)
}
