package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	// Layout is that of the stream, and missing in the first one.
	Layout int `json:"layout"`
	// Agent names the process that publishes.
	Agent string `json:"agent"`
	// Epoch and Seq are of the last event that the server has acknowledged.
	Epoch string `json:"epoch"`
	Seq   uint64 `json:"seq"`
	// CurrentAsOf is the time before the last list whose changes are all published.
	CurrentAsOf time.Time `json:"currentAsOf,omitzero"`
	health
}

// health is what an agent says of its node.
type health struct {
	// Verdict is what is wrong on the node; nil if the agent does not say.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Pods are those whose inspections hang, are slow or fail.
	Pods []Finding `json:"pods,omitempty"`
}

const layout = 2

const (
	// beatPeriod is how often an agent looks for a new verdict, and statusTimeout how long it
	// waits for the status.
	beatPeriod    = 2 * time.Second
	statusTimeout = time.Second
	// maxVerdict is the length of the texts of a verdict in bytes. A verdict with more is
	// published without its findings; maxPods bounds those of pods.
	maxVerdict = 16 << 10
	maxPods    = 100
)

// examine returns what is wrong on the node; nothing if nobody says.
func (p *Publisher) examine(ctx context.Context) (h health) {
	if p.o.Health == nil {
		return h
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := p.o.Health(ctx)
	if err != nil {
		h.Verdict = new(verdict.Silent("does not answer the agent: "+err.Error(), time.Time{}))
		return h
	}
	v := verdict.Of(status)
	if sizeOfFindings(v.Findings) > maxVerdict {
		v = Verdict{Severity: v.Severity, Text: v.Text[:min(len(v.Text), maxText)]}
	}
	h.Verdict = &v
	for _, f := range verdict.Pods(status) {
		f.Evidence, f.Advice = "", ""
		if h.Pods = append(h.Pods, f); len(h.Pods) == maxPods || sizeOfFindings(h.Pods) > maxVerdict {
			break
		}
	}
	slices.SortFunc(h.Pods, func(a, b Finding) int { return a.Since.Compare(b.Since) })
	return h
}

func sizeOfFindings(all []Finding) (size int) {
	for _, f := range all {
		size += len(f.Subject) + len(f.Pod) + len(f.Container) + len(f.Detail) + len(f.Evidence) + len(f.Summary)
	}
	return size
}

// same reports whether two say the same causes, of the same pods.
func (h health) same(other health) bool {
	same := func(a, b Finding) bool {
		return a.Cause == b.Cause && a.Severity == b.Severity && a.PodUID == b.PodUID && a.Call == b.Call
	}
	if !slices.EqualFunc(h.Pods, other.Pods, same) || h.Verdict == nil || other.Verdict == nil {
		return len(h.Pods) == len(other.Pods) && h.Verdict == other.Verdict
	}
	return h.Verdict.Severity == other.Verdict.Severity && slices.EqualFunc(h.Verdict.Findings, other.Verdict.Findings, same)
}

var errHeld = errors.New("another agent publishes as this node")

// takeLease writes this agent into AgentBucket. The first time it replaces another agent,
// so that an agent which restarts does not wait for the lease of its dead self. Later the
// other one is the newer of the two, and this one waits until its lease has expired.
func (p *Publisher) takeLease(ctx context.Context) error {
	// The leader is asked: a replica may still have the lease of before, or none.
	m, err := p.agents.message(ctx, wanted{Last: leaseSubject(p.key)})
	if err != nil {
		return fmt.Errorf("read lease: %w", err)
	}
	p.lease = 0
	if m != nil {
		var holder agentState
		_ = json.Unmarshal(m.Data, &holder) // what cannot be read is replaced
		if m.isValue() && holder.Agent != p.agent && p.owned {
			return fmt.Errorf("%w: %s", errHeld, holder.Agent)
		}
		p.lease = m.Sequence
	}
	p.health = p.examine(ctx)
	return p.renewLease(ctx)
}

func (p *Publisher) renewLease(ctx context.Context) error {
	value, err := json.Marshal(agentState{layout, p.agent, p.acked.Epoch, p.acked.Seq, p.currentAsOf, p.health})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	ack, err := p.js.Publish(ctx, leaseSubject(p.key), value, jetstream.WithExpectLastSequencePerSubject(p.lease))
	if err != nil {
		return fmt.Errorf("renew lease: %w", explain(p.o.Conn, err))
	}
	p.lease, p.renewed = ack.Sequence, time.Now()
	p.loop.Acknowledged()
	return nil
}

// beat renews the lease and publishes old states again, if that is due, or if something else is
// wrong on the node.
func (p *Publisher) beat(ctx context.Context) error {
	now := p.examine(ctx)
	if now.same(p.health) && time.Since(p.renewed) < LeaseTTL/3 {
		return p.refresh(ctx)
	}
	p.health = now
	if err := p.renewLease(ctx); err != nil {
		return err
	}
	p.loop.Works(ctx)
	// Somebody may have removed the messages of the node, which no answer shows while it is quiet.
	if seq, err := p.lastSequence(ctx, []string{p.nodeSubject()}); err != nil || seq != p.fence && p.fence > 0 {
		p.fence = 0
		return cmp.Or(err, errLost)
	}
	return p.refresh(ctx)
}

// release removes the lease, so that the node counts as silent at once.
func (p *Publisher) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	agents, err := p.js.KeyValue(ctx, AgentBucket)
	if err == nil {
		err = agents.Purge(ctx, p.key, jetstream.LastRevision(p.lease))
	}
	if err != nil {
		p.log.DebugContext(ctx, "cannot remove the lease", "err", err)
	}
}

// agents returns the agents that publish now, by their nodes.
func agents(ctx context.Context, js jetstream.JetStream, cluster string, nodes []string) (map[string]agentState, error) {
	bucket, err := openBucket(ctx, js, nil)
	if err != nil {
		return nil, err
	}
	subjects := []string{leaseSubject(token(cluster) + ".*")}
	if len(nodes) > 0 {
		subjects = nil
		for _, node := range nodes {
			subjects = append(subjects, leaseSubject(nodeKey(cluster, node)))
		}
	}
	all := make(map[string]agentState)
	_, err = bucket.snapshot(ctx, subjects, func(m *stored) error {
		var state agentState
		name, err := nodeOf(m.Subject, nodePlace)
		if err == nil && json.Unmarshal(m.Data, &state) == nil { // else it is not of this project
			all[name] = state
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", AgentBucket, err)
	}
	return all, nil
}

// old returns the verdict on a node whose agent publishes in the first layout, nil if it does not.
func (a agentState) old() *Verdict {
	if a.Agent == "" || a.Layout == layout {
		return nil
	}
	return new(verdict.Silent("publishes in the layout of an older version: update its agent", time.Time{}))
}

// of returns what an agent says of a pod; nil for nothing.
func (h health) of(uid pleg.PodUID) *Finding {
	if i := slices.IndexFunc(h.Pods, func(f Finding) bool { return f.PodUID == uid }); i >= 0 {
		return &h.Pods[i]
	}
	return nil
}
