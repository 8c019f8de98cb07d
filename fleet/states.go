package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
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

// OpenStates returns the states of a cluster. It fails if the server cannot be reached, or if nothing
// has been published for the cluster yet.
func OpenStates(ctx context.Context, js jetstream.JetStream, cluster string) (*States, error) {
	if err := checkName("cluster", cluster); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, err := openStream(ctx, js, cluster, nil)
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
	// Epoch and Seq are of an event that was published and that all states of the node include.
	Epoch string
	Seq   uint64
	// CurrentAsOf is the time before the last list of the node whose changes are all
	// published; zero if nobody publishes.
	CurrentAsOf time.Time
	// Verdict is what is wrong on the node, such as that nobody publishes; nil if its agent does
	// not say.
	Verdict *Verdict

	health health
}

// Nodes returns all nodes that have published, sorted by name.
func (s *States) Nodes(ctx context.Context) ([]Node, error) {
	known, err := s.nodes(ctx, nil)
	if err != nil {
		return nil, err
	}
	all := make([]Node, 0, len(known))
	for _, n := range known {
		all = append(all, *n)
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// nodes returns some nodes by their names; without names, all.
func (s *States) nodes(ctx context.Context, names []string) (map[string]*Node, error) {
	running, err := agents(ctx, s.js, s.cluster, names)
	if err != nil {
		return nil, err
	}
	known := make(map[string]*Node)
	subjects := []string{subjectPrefix + token(s.cluster) + ".*." + nodeToken}
	if len(names) > 0 {
		subjects = nil
		for _, name := range names {
			subjects = append(subjects, podSubject(s.cluster, name, ""))
		}
	}
	_, err = s.snapshot(ctx, subjects, func(m *stored) error {
		if name, err := nodeOf(m.Subject, nodePlace); err == nil {
			own, _ := decode(m.Data) // the name is enough
			known[name] = &Node{Name: name, Epoch: own.Epoch, Seq: own.Seq}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, agent := range running {
		n := known[name]
		if n == nil && agent.old() != nil { // it publishes elsewhere
			n = &Node{Name: name}
			known[name] = n
		}
		if n != nil {
			if n.Agent, n.CurrentAsOf = agent.Agent, agent.CurrentAsOf; agent.Epoch == n.Epoch {
				n.Seq = max(n.Seq, agent.Seq)
			}
			n.Verdict, n.health = cmp.Or(agent.old(), agent.Verdict), agent.health
		}
	}
	for _, n := range known {
		if n.Agent == "" {
			n.Verdict = s.silent(ctx, n.Name)
		}
	}
	return known, nil
}

// silent returns the verdict on a node that nobody publishes for.
func (s *States) silent(ctx context.Context, node string) *Verdict {
	var since time.Time
	if m, err := s.message(ctx, wanted{Last: subjectsOf(s.cluster, []string{node})[0]}); err == nil && m != nil {
		since = m.Time
	}
	return new(verdict.Silent("has no agent and has published nothing", since))
}

// Pod is the state of one pod.
type Pod struct {
	cache.Entry

	Node            string
	Name, Namespace string
	Labels          map[string]string
	// LastEvent is the newest event of a container or sandbox that is not removed.
	LastEvent pleg.Event
	// Finding is what is wrong with the inspections of the pod, or that nobody publishes for its node;
	// nil if nothing is known to be wrong.
	Finding *Finding
	// Silent is true if nobody publishes for the node: the pod may have changed since CurrentAsOf.
	Silent bool
}

// Pods ranges over the pods of the cluster, or of some nodes and namespaces, in no order.
// An error ends the range.
func (s *States) Pods(ctx context.Context, nodes, namespaces []string) iter.Seq2[Pod, error] {
	return func(yield func(Pod, error) bool) {
		known, err := s.nodes(ctx, nodes)
		pods := make(map[string]Pod) // a pod may have another message while the state is read
		if err == nil {
			_, err = s.snapshot(ctx, subjectsOf(s.cluster, nodes), func(m *stored) error {
				delete(pods, m.Subject)
				if pod, ok := podOf(known, m); ok && (len(namespaces) == 0 || slices.Contains(namespaces, pod.Namespace)) {
					pods[m.Subject] = pod
				}
				return nil
			})
		}
		if err != nil {
			yield(Pod{}, fmt.Errorf("read the pods: %w", err))
			return
		}
		for _, n := range known { // a pod whose first inspection hangs has no events
			for _, f := range n.health.Pods {
				subject := podSubject(s.cluster, n.Name, f.PodUID)
				namespace, name, _ := strings.Cut(f.Pod, "/")
				if _, ok := pods[subject]; !ok && (len(namespaces) == 0 || slices.Contains(namespaces, namespace)) {
					pods[subject] = Pod{Entry: cache.Entry{UID: f.PodUID}, Node: n.Name, Namespace: namespace, Name: name, Finding: &f}
				}
			}
		}
		for _, pod := range pods {
			if !yield(pod, nil) {
				return
			}
		}
	}
}

// Pod returns the state of one pod; false if it is gone.
func (s *States) Pod(ctx context.Context, node string, uid pleg.PodUID) (pod Pod, ok bool, err error) {
	known, err := s.nodes(ctx, []string{node})
	if err != nil {
		return Pod{}, false, err
	}
	m, err := s.message(ctx, wanted{Last: podSubject(s.cluster, node, uid)})
	if err != nil || m == nil {
		return Pod{}, false, err
	}
	pod, ok = podOf(known, m)
	return pod, ok, nil
}

// podOf returns the pod in a message; false if it is gone, or the message is not about a pod.
func podOf(nodes map[string]*Node, of *stored) (Pod, bool) {
	name, err := nodeOf(of.Subject, nodePlace)
	node := nodes[name]
	if err != nil || node == nil {
		return Pod{}, false
	}
	m, err := decode(of.Data)
	if err != nil || !m.aboutPod() || m.Pod.Gone {
		return Pod{}, false
	}
	pod := Pod{Node: name, Name: m.PodName, Namespace: m.PodNamespace, Labels: m.Pod.Labels, Finding: node.health.of(m.PodUID)}
	pod.UID = m.PodUID
	if len(m.Pod.Events) > 0 {
		pod.LastEvent = m.Pod.Events[len(m.Pod.Events)-1]
	}
	pod.Status, err = m.Pod.status(&m.Event)
	switch {
	case err != nil:
		pod.Err = err
	case m.Pod.Error != "":
		pod.Err = &pleg.InspectionError{Err: errors.New(m.Pod.Error)}
	}
	pod.CurrentAsOf = m.ObservedAt
	if node.CurrentAsOf.After(pod.CurrentAsOf) {
		pod.CurrentAsOf = node.CurrentAsOf
	}
	if pod.Silent = node.Agent == ""; pod.Silent && len(node.Verdict.Findings) > 0 {
		pod.Finding = &node.Verdict.Findings[0]
	}
	return pod, true
}
