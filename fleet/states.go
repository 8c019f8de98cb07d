package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
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
	away    []error // why a part is nil
}

// OpenStates returns the states of a cluster. It fails if no part can be reached, or if nothing
// has been published on the server yet. A part that cannot be reached now has only errors later.
func OpenStates(ctx context.Context, js jetstream.JetStream, cluster string) (*States, error) {
	if err := checkName("cluster", cluster); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	parts, errs, err := openAll(ctx, js, nil)
	if err == nil && !slices.Contains(errs, nil) {
		err = errors.Join(errs...)
	}
	if err != nil {
		return nil, fmt.Errorf("open states: %w", err)
	}
	return &States{js: js, cluster: cluster, parts: parts, away: errs}, nil
}

func (s *States) of(node string) (*server, error) {
	number := partOf(node, len(s.parts)).number
	return s.parts[number], s.away[number]
}

// read calls one for each of some parts, at the same time. A part that is away does not keep the
// others from being read: the error names it.
func (s *States) read(parts map[int][]string, one func(part *server, nodes []string) error) error {
	errs := slices.Clone(s.away)
	var reading sync.WaitGroup
	for number := range s.parts {
		nodes, wanted := parts[number]
		switch {
		case !wanted:
			errs[number] = nil
		case errs[number] == nil:
			reading.Go(func() { errs[number] = s.parts[number].explain(one(s.parts[number], nodes)) })
		}
	}
	reading.Wait()
	return errors.Join(errs...)
}

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

	after uint64 // of the node's key
}

// Nodes returns all nodes that have published, sorted by name. If there is an error, these are the
// nodes of the parts that could be read.
func (s *States) Nodes(ctx context.Context) ([]Node, error) {
	all := []Node{}
	var mu sync.Mutex
	err := s.read(byPart(nil, len(s.parts)), func(part *server, _ []string) error {
		nodes, err := part.nodes(ctx, []string{token(s.cluster) + ".*"})
		for _, n := range nodes {
			if n.Agent == "" {
				v := part.silent(ctx, s.cluster, n.Name)
				n.Verdict = &v
			}
			mu.Lock()
			all = append(all, *n)
			mu.Unlock()
		}
		return err
	})
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

func (s *server) nodes(ctx context.Context, keys []string) (map[string]*Node, error) {
	nodes := make(map[string]*Node)
	err := s.readBucket(ctx, StateBucket, keys, func(e entry) error {
		var state nodeState
		if name, err := decodeState(e, &state); err == nil {
			nodes[name] = &Node{Name: name, Epoch: state.Epoch, Seq: state.Seq, after: state.After}
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
// An error ends the range: it comes after the pods of the parts that could be read.
func (s *States) Pods(ctx context.Context, nodes, namespaces []string) iter.Seq2[Pod, error] {
	return func(yield func(Pod, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		pods := make(chan Pod)
		defer func() {
			cancel()
			for range pods { // until nobody reads any more
			}
		}()
		var err error
		go func() {
			defer close(pods)
			err = s.read(byPart(nodes, len(s.parts)), func(part *server, nodes []string) error {
				nodeKeys, podKeys := keys(s.cluster, nodes, namespaces)
				return part.eachPod(ctx, nodeKeys, podKeys, func(pod Pod) error {
					select {
					case pods <- pod:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
			})
		}()
		for pod := range pods {
			if !yield(pod, nil) {
				return
			}
		}
		if err != nil {
			yield(Pod{}, err)
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
	part, err := s.of(node)
	if err != nil {
		return Pod{}, false, err
	}
	nodes, err := part.nodes(ctx, []string{nodeKey(s.cluster, node)})
	if err != nil {
		return Pod{}, false, err
	}
	err = part.readNode(ctx, []string{podKey(s.cluster, node, namespace, uid)}, func(e entry) error {
		pod, ok = podOf(nodes, e)
		return nil
	})
	return pod, ok, err
}

// podOf returns the pod in an entry; false if it is gone, or what a replaced agent wrote.
func podOf(nodes map[string]*Node, e entry) (Pod, bool) {
	var state podState
	name, err := decodeState(e, &state)
	node := nodes[name]
	if err != nil || node == nil || !state.isCurrent(node.Epoch, node.after) {
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
