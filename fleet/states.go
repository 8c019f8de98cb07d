package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// States reads the present state of a cluster. Its methods are safe for concurrent use.
type States struct {
	*store

	cluster string
}

// thorough is the patience of a reader that does not try again.
var thorough = &patience{unanswered: 6}

// OpenStates returns the states of a cluster. mirror is the name of a mirror of its stream; if empty, the stream itself is read. It fails if the server cannot be reached, or if nothing
// has been published for the cluster yet.
func OpenStates(ctx context.Context, js jetstream.JetStream, cluster, mirror string) (*States, error) {
	if err := checkName("cluster", cluster, maxCluster); err != nil {
		return nil, err
	}
	stream, err := openStream(ctx, js, thorough, cluster, mirror, nil)
	if err != nil {
		return nil, fmt.Errorf("open states: %w", err)
	}
	return &States{stream, cluster}, nil
}

// Node is a node of the cluster.
type Node struct {
	Name string
	// Agent names the process that publishes; empty if none does.
	Agent string
	// LastSeen is the time at which its agent last renewed its lease, by the clock of the server.
	LastSeen time.Time
	// CurrentAsOf is the time before the last list of the node whose changes are all
	// published; zero if nobody publishes.
	CurrentAsOf time.Time
	// Verdict names the problems of the node, such as that nobody publishes; nil if its agent
	// reports no verdict.
	Verdict *Verdict

	// Silent is true if nobody publishes for the node, or if its agent has not published all pods: its pods may have
	// changed since CurrentAsOf.
	Silent bool

	health health
}

// Nodes returns all nodes that have published, or whose agent runs, sorted by name.
func (s *States) Nodes(ctx context.Context) ([]Node, error) {
	known, err := s.nodes(ctx, nil)
	return slices.SortedFunc(maps.Values(known), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) }), err
}

// nodes returns some nodes by their names; without names, all.
func (s *States) nodes(ctx context.Context, names []string) (map[string]Node, error) {
	bucket := &store{patience: thorough, js: s.js}
	var info *jetstream.StreamInfo
	known := make(map[string]Node)
	var err error
	if bucket.stream, err = s.js.Stream(ctx, "KV_"+AgentBucket); err == nil {
		info, err = bucket.info(ctx)
	}
	if err == nil {
		_, err = bucket.snapshot(ctx, subjects(leasePrefix, s.cluster, names, ""), func(m *jetstream.RawStreamMsg) {
			known[nodeOf(m.Subject)] = nodeIn(m, info.TimeStamp)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", AgentBucket, err)
	}
	published := make(map[string]bool)
	_, err = s.snapshot(ctx, subjects(subjectPrefix, s.cluster, names, "."+nodeToken), func(m *jetstream.RawStreamMsg) {
		name := nodeOf(m.Subject)
		n, leased := known[name]
		of, err := decode(m.Data)
		switch {
		case !leased: // the bucket keeps a lease for a day
			n = Node{Name: name, LastSeen: m.Time, Silent: true, Verdict: new(verdict.Silent(noAgent, m.Time))}
		case err == nil && of.kind == ofGap && !n.Silent:
			n.Silent, n.Verdict = true, new(verdict.Silent("has not published the states of all its pods", m.Time))
		}
		known[name], published[name] = n, of.kind != ofGone
	})
	maps.DeleteFunc(known, func(name string, n Node) bool { return n.Agent == "" && !published[name] })
	return known, err
}

const noAgent = "has no agent"

// nodeIn returns the node in an agent's value, as of a time of the server.
func nodeIn(m *jetstream.RawStreamMsg, now time.Time) Node {
	var agent agentState
	n := Node{Name: nodeOf(m.Subject), LastSeen: m.Time, Silent: true}
	err := json.Unmarshal(m.Data, &agent)
	switch {
	case err == nil && agent.Ended:
		n.Verdict = ill(Finding{Severity: verdict.Warning, What: "was stopped", Since: m.Time})
	case err != nil, now.Sub(m.Time) > LeaseTTL:
		n.Verdict = new(verdict.Silent(noAgent, m.Time))
	case agent.Layout != layout:
		n.Agent, n.Verdict = agent.Agent, new(verdict.Silent("publishes in the layout of an older version: update its agent", time.Time{}))
	case agent.Fault != nil:
		n.Agent = agent.Agent
		n.Verdict = ill(Finding{
			Severity: verdict.Problem, What: "cannot publish", Since: agent.Fault.Since, Detail: ": " + agent.Fault.Why,
			Advice: "look at the stream and its servers (nats stream report); if the stream is full, make it larger (nats stream edit --max-bytes)",
		})
	default:
		return Node{n.Name, agent.Agent, m.Time, agent.CurrentAsOf, agent.Verdict, false, agent.health}
	}
	return n
}

// ill returns the verdict on a node without new messages.
func ill(f Finding) *Verdict {
	f.Cause, f.Subject = verdict.NodeSilent, "the node"
	return new(verdict.New([]Finding{f.Completed(time.Now())}, ""))
}

// Pod is the state of one pod.
type Pod struct {
	cache.Entry

	Node            string
	Name, Namespace string
	Labels          map[string]string
	// Finding is the problem of the pod's inspections, or that nobody publishes for its node; nil if
	// no problem is known.
	Finding *Finding
	// Silent is true if the node is: the pod may have changed since CurrentAsOf.
	Silent bool
	// Partial names the parts of the pod that were too large to publish; empty if it is whole.
	Partial string
}

// Pods ranges over the pods of the cluster, or of some nodes and namespaces, in no order.
// An error ends the range.
func (s *States) Pods(ctx context.Context, nodes, namespaces []string) iter.Seq2[Pod, error] {
	return func(yield func(Pod, error) bool) {
		known, err := s.nodes(ctx, nodes)
		pods := make(map[string]Pod)
		if err == nil {
			_, err = s.snapshot(ctx, allOf(s.cluster, nodes...), func(m *jetstream.RawStreamMsg) {
				if pod, ok := podOf(known, m); ok {
					pods[m.Subject] = pod
				} else {
					delete(pods, m.Subject)
				}
			})
		}
		if err != nil {
			yield(Pod{}, fmt.Errorf("read the pods: %w", err))
			return
		}
		for _, n := range known { // a pod whose first inspection hangs has no events
			for _, f := range n.health.Pods {
				subject := podSubject(s.cluster, n.Name, f.PodUID)
				if _, ok := pods[subject]; !ok {
					namespace, name, _ := strings.Cut(f.Pod, "/")
					pods[subject] = Pod{Entry: cache.Entry{UID: f.PodUID}, Node: n.Name, Namespace: namespace, Name: name, Finding: &f}
				}
			}
		}
		for _, pod := range pods {
			if (len(namespaces) == 0 || slices.Contains(namespaces, pod.Namespace)) && !yield(pod, nil) {
				return
			}
		}
	}
}

// podOf returns the pod in a message; false if it is gone, or the message is not about a pod.
func podOf(nodes map[string]Node, of *jetstream.RawStreamMsg) (Pod, bool) {
	node, known := nodes[nodeOf(of.Subject)]
	m, err := decode(of.Data)
	if err != nil || !known || m.Pod == nil || m.Pod.Gone {
		return Pod{}, false
	}
	pod := Pod{Node: node.Name, Name: m.PodName, Namespace: m.PodNamespace, Finding: node.health.of(m.PodUID), Partial: m.Pod.Error}
	pod.UID, pod.CurrentAsOf = m.PodUID, m.ObservedAt
	statuses, err := m.statuses()
	if pod.Labels, pod.Status = statuses.Labels, statuses.Status; err != nil {
		pod.Partial = err.Error()
	}
	if node.CurrentAsOf.After(pod.CurrentAsOf) {
		pod.CurrentAsOf = node.CurrentAsOf
	}
	if pod.Silent = node.Silent; pod.Silent && len(node.Verdict.Findings) > 0 {
		pod.Finding = &node.Verdict.Findings[0]
	}
	return pod, true
}

// Check returns an error unless all these nodes have published; without nodes, unless some node of the
// cluster has published.
func (s *States) Check(ctx context.Context, nodes []string) error {
	known, err := s.nodes(ctx, nodes)
	if err == nil && len(known) == 0 && len(nodes) == 0 {
		err = fmt.Errorf("no node of cluster %q has published", s.cluster)
	}
	for _, node := range nodes {
		if _, ok := known[node]; err == nil && !ok {
			err = s.unknown(node)
		}
	}
	return err
}

func (s *States) unknown(node string) error {
	return fmt.Errorf("node %q of cluster %q has not published", node, s.cluster)
}

// Forget removes the states and events of a node that is gone, and leaves one message that says so, for watches that
// resume. It is an error if there is no such node, or if an agent still publishes as it.
func (s *States) Forget(ctx context.Context, node string) error {
	if err := checkName("node", node, maxName); err != nil {
		return err
	}
	known, err := s.nodes(ctx, []string{node})
	n, ok := known[node]
	if err == nil && !ok {
		return s.unknown(node)
	}
	if n.Agent != "" {
		err = fmt.Errorf("an agent publishes as this node: %s", n.Agent)
	}
	if err == nil {
		err = s.stream.Purge(ctx, jetstream.WithPurgeSubject(allOf(s.cluster, node)[0]))
	}
	if err == nil {
		ev := pleg.Event{ObservedAt: time.Now()}
		_, err = s.js.Publish(ctx, nodeSubject(s.cluster, node), encode(newMessage(ceSource(s.cluster, node), ofGone, &ev)))
	}
	if err != nil {
		return fmt.Errorf("forget node %s: %w", node, explain(s.js.Conn(), err))
	}
	return nil
}

// Size returns the bytes in the stream, and its limit; 0 without a limit.
func (s *States) Size(ctx context.Context) (bytes, limit uint64, err error) {
	info, err := s.info(ctx)
	if err != nil {
		return 0, 0, err
	}
	return info.State.Bytes, uint64(max(0, info.Config.MaxBytes)), nil
}
