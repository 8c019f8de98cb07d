// Package nodetest is a container runtime in memory, for tests of what the
// pipeline makes of a runtime's answers.
package nodetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// Address is that of every pod with a ready sandbox.
const Address = "10.0.0.1"

// Node is a runtime whose pods are set by hand. It is safe for concurrent use.
type Node struct {
	// Delay, if not nil, is how long the inspection of a pod takes. It is set
	// before the node is used.
	Delay func(uid pleg.PodUID) time.Duration

	mu     sync.Mutex
	pods   map[pleg.PodUID]*pleg.Pod
	broken map[pleg.PodUID]error
	silent error
}

// New returns a node without pods.
func New() *Node {
	return &Node{pods: make(map[pleg.PodUID]*pleg.Pod), broken: make(map[pleg.PodUID]error)}
}

// Put adds a pod or replaces what the node has of it.
func (n *Node) Put(pod *pleg.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[pod.UID] = pod
}

// Set puts the pod that podtest makes of words; no words remove it. Its
// namespace is what the UID has before a slash, and its label "pod" what it has
// behind. Its sandboxes are as old as this call.
func (n *Node) Set(uid pleg.PodUID, words string) {
	if strings.TrimSpace(words) == "" {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.pods, uid)
		return
	}
	pod := plegtest.Pod(uid, words)
	if namespace, name, ok := strings.Cut(string(uid), "/"); ok {
		pod.Namespace, pod.Labels = namespace, map[string]string{"pod": name}
	}
	for _, sandbox := range pod.Sandboxes {
		sandbox.CreatedAt = time.Now()
	}
	n.Put(pod)
}

// Fill sets count pods, named p0 and so on, to the same words.
func (n *Node) Fill(count int, words string) {
	for i := range count {
		n.Set(pleg.PodUID(fmt.Sprintf("p%d", i)), words)
	}
}

// Break has inspections of the pod fail, until err is nil.
func (n *Node) Break(uid pleg.PodUID, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[uid] = err
}

// Silence has lists fail, until err is nil.
func (n *Node) Silence(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = err
}

// ListPods implements [pleg.Runtime].
func (n *Node) ListPods(context.Context) ([]*pleg.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent != nil {
		return nil, n.silent
	}
	return slices.Collect(maps.Values(n.pods)), nil
}

// PodStatus implements [pleg.Runtime]. What has exited did so with code 3.
func (n *Node) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	if n.Delay != nil {
		if err := wait(ctx, n.Delay(pod.UID)); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.broken[pod.UID]; err != nil {
		return nil, err
	}
	s := plegtest.Status(pod)
	s.Namespace = pod.Namespace
	if s.SandboxReady() {
		s.IPs = []string{Address}
	}
	for i, sandbox := range s.Sandboxes {
		sandbox.IPs, sandbox.CreatedAt = s.IPs, pod.Sandboxes[i].CreatedAt
	}
	return s, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
