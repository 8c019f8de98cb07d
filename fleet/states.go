package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// States reads the present state of a cluster. Its methods are safe for concurrent use.
type States struct {
	js      jetstream.JetStream
	cluster string
	parts   []*server
}

// OpenStates returns the states of a cluster. It fails if the server cannot be reached, or
// if nothing has been published on it yet.
func OpenStates(ctx context.Context, js jetstream.JetStream, cluster string) (*States, error) {
	if err := checkName("cluster", cluster); err != nil {
		return nil, err
	}
	parts, err := openAll(ctx, js, nil)
	if err != nil {
		return nil, fmt.Errorf("open states: %w", err)
	}
	return &States{js: js, cluster: cluster, parts: parts}, nil
}

// of returns the part of a node.
func (s *States) of(node string) *server { return s.parts[partOf(node, len(s.parts)).number] }

// Node is a node of the cluster.
type Node struct {
	Name string
	// Agent names the process that publishes; empty if none does.
	Agent string
	// Epoch and Seq are of an event that was published and that all states of the node
	// include.
	Epoch string
	Seq   uint64
	// CurrentAsOf is the time before the last list of the node whose changes are all
	// published; zero if nobody publishes.
	CurrentAsOf time.Time
	// Verdict is what is wrong on the node, such as that nobody publishes; nil if its agent does
	// not say.
	Verdict *Verdict
}

// Nodes returns all nodes that have published, sorted by name.
func (s *States) Nodes(ctx context.Context) ([]Node, error) {
	all := []Node{}
	for _, part := range s.parts {
		nodes, err := part.nodes(ctx, []string{token(s.cluster) + ".*"})
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if n.Agent == "" {
				v := s.silent(ctx, n.Name)
				n.Verdict = &v
			}
			all = append(all, *n)
		}
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func (s *server) nodes(ctx context.Context, keys []string) (map[string]*Node, error) {
	nodes := make(map[string]*Node)
	err := s.readBucket(ctx, StateBucket, keys, func(e entry) error {
		var state nodeState
		if name, err := decodeState(e, &state); err == nil {
			nodes[name] = &Node{Name: name, Epoch: state.Epoch, Seq: state.Seq}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.readBucket(ctx, AgentBucket, keys, func(e entry) error {
		var agent agentState
		name, err := decodeState(e, &agent)
		if n := nodes[name]; n != nil && err == nil { // else it is not of this project
			n.Agent, n.CurrentAsOf, n.Verdict = agent.Agent, agent.CurrentAsOf, agent.Verdict
			if agent.Epoch == n.Epoch {
				n.Seq = max(n.Seq, agent.Seq)
			}
		}
		return nil
	})
	return nodes, err
}

// Pod is the state of one pod.
type Pod struct {
	cache.Entry

	Node            string
	Name, Namespace string
	Labels          map[string]string
	// LastEvent is the newest event of a container or sandbox that is not removed.
	LastEvent pleg.Event
}

// Pods ranges over the pods of the cluster, or of some nodes and namespaces, in no order.
// An error ends the range.
func (s *States) Pods(ctx context.Context, nodes, namespaces []string) iter.Seq2[Pod, error] {
	return func(yield func(Pod, error) bool) {
		deliver := func(pod Pod) error {
			if !yield(pod, nil) {
				return errStopped
			}
			return nil
		}
		for number, nodes := range byPart(nodes, len(s.parts)) {
			nodeKeys, podKeys := keys(s.cluster, nodes, namespaces)
			err := s.parts[number].eachPod(ctx, nodeKeys, podKeys, deliver)
			if err != nil {
				if !errors.Is(err, errStopped) {
					yield(Pod{}, err)
				}
				return
			}
		}
	}
}

func (s *server) eachPod(ctx context.Context, nodeKeys, podKeys []string, each func(Pod) error) error {
	nodes, err := s.nodes(ctx, nodeKeys)
	if err != nil {
		return err
	}
	return s.readBucket(ctx, StateBucket, podKeys, func(e entry) error {
		if pod, ok := podOf(nodes, e); ok {
			return each(pod)
		}
		return nil
	})
}

// keys returns the keys of nodes of a cluster, and of their pods in namespaces. Without nodes or
// namespaces, those of all.
func keys(cluster string, nodes, namespaces []string) (nodeKeys, podKeys []string) {
	nodeTokens, namespaceTokens := tokens(nodes), tokens(namespaces)
	for _, node := range nodeTokens {
		nodeKeys = append(nodeKeys, token(cluster)+"."+node)
		for _, namespace := range namespaceTokens {
			podKeys = append(podKeys, token(cluster)+"."+node+"."+namespace+".*")
		}
	}
	return nodeKeys, podKeys
}

// tokens returns the tokens of names; without names, the wildcard.
func tokens(names []string) []string {
	if len(names) == 0 {
		return []string{"*"}
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = token(name)
	}
	return all
}

// Pod returns the state of one pod; false if it is gone.
func (s *States) Pod(ctx context.Context, node, namespace string, uid pleg.PodUID) (pod Pod, ok bool, err error) {
	part, key := s.of(node), nodeKey(s.cluster, node)
	nodes, err := part.nodes(ctx, []string{key})
	if err != nil {
		return Pod{}, false, err
	}
	err = part.readNode(ctx, []string{podKey(s.cluster, node, namespace, uid)}, func(e entry) error {
		pod, ok = podOf(nodes, e)
		return nil
	})
	return pod, ok, err
}

// podOf returns the pod in an entry; false if it is gone or of an epoch that has ended.
func podOf(nodes map[string]*Node, e entry) (Pod, bool) {
	var state podState
	name, err := decodeState(e, &state)
	node := nodes[name]
	if err != nil || node == nil || node.Epoch != state.Epoch {
		return Pod{}, false
	}
	pod := Pod{Node: name, Name: state.Name, Namespace: state.Namespace, Labels: state.Labels}
	pod.UID = state.UID
	if len(state.Events) > 0 {
		pod.LastEvent = state.Events[len(state.Events)-1]
	}
	pod.Status, err = state.status()
	switch {
	case err != nil:
		pod.Err = err
	case state.Error != "":
		pod.Err = &pleg.InspectionError{Err: errors.New(state.Error)}
	}
	pod.CurrentAsOf = pod.LastEvent.ObservedAt
	if node.CurrentAsOf.After(pod.CurrentAsOf) {
		pod.CurrentAsOf = node.CurrentAsOf
	}
	return pod, true
}
