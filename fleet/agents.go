package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Verdict names the problems of a node.
type Verdict = verdict.Verdict

// Finding is one cause of a [Verdict].
type Finding = verdict.Finding

// agentState is the value of a node in [AgentBucket].
type agentState struct {
	// Layout is the layout of the stream; 0 for the first layout.
	Layout int `json:"layout"`
	// Agent names the process that publishes.
	Agent string `json:"agent"`
	// CurrentAsOf is the time before the last list whose changes are all published.
	CurrentAsOf time.Time `json:"currentAsOf,omitzero"`
	// Fault is the reason why nothing is published; nil while publishing works.
	Fault *fault `json:"fault,omitempty"`
	// Ended is true if the agent has ended as it should.
	Ended bool `json:"ended,omitempty"`
	health
}

// fault is the reason why an agent cannot publish, and the time since which it cannot.
type fault struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// lastingFault returns the fault unless it has just begun.
func (p *Publisher) lastingFault() *fault {
	if f := p.fault.Load(); f != nil && time.Since(f.Since) >= renewPeriod {
		return f
	}
	return nil
}

// health is an agent's report about its node.
type health struct {
	// Verdict names the problems of the node; nil if the agent does not report any verdict.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Pods are the pods whose inspections hang, are slow or fail.
	Pods []Finding `json:"pods,omitempty"`
}

const layout = 2

const (
	// beatPeriod is how often an agent looks for a new verdict, and statusTimeout how long it
	// waits for the status.
	beatPeriod = time.Second
	// renewPeriod is the time between two renewals of the lease.
	renewPeriod   = 4 * time.Second
	statusTimeout = time.Second
	// maxHealth is the largest size of an agent's health. If it is larger, the findings are left out.
	maxHealth = 64 << 10
	// maxPods bounds the findings of pods.
	maxPods = 100
)

// examine returns the health of the node; nothing if there is no Health function.
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

// causes returns the parts of a health that are compared with the previous health: no times and no
// numbers.
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

// of returns an agent's finding about a pod; nil if there is none.
func (h health) of(uid pleg.PodUID) *Finding {
	if i := slices.IndexFunc(h.Pods, func(f Finding) bool { return f.PodUID == uid }); i >= 0 {
		return &h.Pods[i]
	}
	return nil
}

// lease is the publisher's value in AgentBucket.
type lease struct {
	bucket jetstream.KeyValue
	// revision is the revision of this agent's value; 0 if there is no value.
	revision uint64
	renewed  time.Time
	// rival is the revision of another agent's value, and rivalSince the time since which it is
	// known.
	rival      uint64
	rivalSince time.Time
	// owned is true once this publisher has published as its node.
	owned bool
	health
	// named is the fault in the bucket.
	named *fault
}

// renew writes this agent and the health of its node into AgentBucket. The first time it replaces another
// agent: an agent that restarts must not wait for the lease of its earlier process. Later another agent is the
// newer of the two, and this agent waits until the other's lease has expired.
func (p *Publisher) renew(ctx context.Context, h health) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	defer func() {
		if err != nil { // the bucket may have been deleted
			p.revision, p.bucket = 0, nil
		}
	}()
	if p.bucket == nil {
		if p.bucket, err = openBucket(ctx, p.js, &p.o.Limits); err != nil {
			return err
		}
	}
	if p.revision == 0 {
		if p.revision, err = p.claim(ctx); err != nil {
			return err
		}
	}
	if len(p.queue) == 0 && !p.currentAsOf.IsZero() { // otherwise it is behind the messages that wait
		p.publishedAsOf = p.currentAsOf
	}
	failing := p.lastingFault()
	text, err := json.Marshal(agentState{Layout: layout, Agent: p.agent, CurrentAsOf: p.publishedAsOf, Fault: failing, health: h})
	if err == nil && p.revision == 0 {
		p.revision, err = p.bucket.Create(ctx, p.key, text)
	} else if err == nil {
		p.revision, err = p.bucket.Update(ctx, p.key, text, p.revision)
	}
	if err != nil {
		return fmt.Errorf("renew lease: %w", explain(p.o.Conn, err))
	}
	p.owned, p.health, p.renewed, p.named = true, h, time.Now(), failing
	return nil
}

// claim returns the revision of the value that this agent may replace; 0 if there is none.
func (p *Publisher) claim(ctx context.Context) (uint64, error) {
	entry, err := p.bucket.Get(ctx, p.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("renew lease: %w", explain(p.o.Conn, err))
	}
	var holder agentState
	known := json.Unmarshal(entry.Value(), &holder) == nil // an unreadable value is replaced
	if known && p.owned && holder.Agent != p.agent && !holder.Ended {
		if p.pods = nil; p.rival != entry.Revision() {
			p.rival, p.rivalSince = entry.Revision(), time.Now()
		}
		if time.Since(p.rivalSince) < LeaseTTL {
			return 0, fmt.Errorf("another agent publishes as this node: %s", holder.Agent)
		}
	}
	return entry.Revision(), nil
}

// endLease says that this agent has ended, unless another one has replaced it.
func (p *Publisher) endLease(ctx context.Context) {
	if p.revision == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	text, _ := json.Marshal(agentState{Layout: layout, Agent: p.agent, Ended: true}) // texts never fail
	_, _ = p.bucket.Update(ctx, p.key, text, p.revision)
}

// due reports whether the lease is to be renewed: because of its age, or because the health changed.
func (p *Publisher) due(now health) bool {
	return time.Since(p.renewed) >= renewPeriod || !slices.Equal(now.causes(), p.causes()) || p.lastingFault() != p.named
}

// beat renews the lease if that is due, verifies the server's messages, and publishes old states
// again.
func (p *Publisher) beat(ctx context.Context) error {
	if now := p.examine(ctx); p.due(now) {
		if err := p.renew(ctx, now); err != nil {
			return err
		}
	}
	if p.gap != nil || len(p.queue) > 0 {
		return nil
	}
	p.works(ctx)
	if time.Since(p.verified) > verifyPeriod {
		p.verified = time.Now()
		if err := p.verify(ctx); err != nil {
			return err
		}
	}
	p.refresh(ctx)
	return nil
}

// pause waits between two sessions. Meanwhile the agent says that it cannot publish, and why.
func (p *Publisher) pause(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if err := backoff.Wait(ctx, min(beatPeriod, time.Until(end))); err != nil {
			return err
		}
		if !time.Now().Before(end) {
			return nil
		}
		if now := p.examine(ctx); p.revision > 0 && p.o.Conn.IsConnected() && p.due(now) {
			_ = p.renew(ctx, now) // the next session finds the error
		}
	}
}
