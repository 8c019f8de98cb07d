package pipeline_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

const relistPeriod = pipeline.DefaultRelistPeriod

// node is a container runtime that the test is in charge of. A hook stands for
// what goes wrong, and for how long it takes.
type node struct {
	mu      sync.Mutex
	pods    []*pleg.Pod
	onList  func(ctx context.Context) ([]*pleg.Pod, error)
	inspect map[pleg.PodUID]hook

	lists     []time.Time
	inspected map[pleg.PodUID]int
	inFlight  map[pleg.PodUID]int
	peak      int // of inspections in flight
	peakOfPod int
	unbounded int // calls without a deadline
}

// hook returns what an inspection returns; a nil status and a nil error stand
// for the status as it was listed.
type hook func(ctx context.Context, pod *pleg.Pod) (*pleg.PodStatus, error)

func newNode() *node {
	return &node{inspect: make(map[pleg.PodUID]hook), inspected: make(map[pleg.PodUID]int), inFlight: make(map[pleg.PodUID]int)}
}

// set has the pod be as the words of plegtest.Pod say.
func (n *node) set(uid pleg.PodUID, words string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := plegtest.Pod(uid, words)
	if i := n.index(uid); i >= 0 {
		n.pods[i] = pod
		return
	}
	n.pods = append(n.pods, pod)
}

func (n *node) remove(uid pleg.PodUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := n.index(uid); i >= 0 {
		n.pods = slices.Delete(n.pods, i, i+1)
	}
}

func (n *node) index(uid pleg.PodUID) int {
	return slices.IndexFunc(n.pods, func(p *pleg.Pod) bool { return p.UID == uid })
}

// on sets the hook of the pod's inspections; nil ends it.
func (n *node) on(uid pleg.PodUID, h hook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inspect[uid] = h
}

// calls returns how often the pod was inspected, and how often all were listed.
func (n *node) calls(uid pleg.PodUID) (inspected, listed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inspected[uid], len(n.lists)
}

// onLists sets the hook of the next lists; nil ends it.
func (n *node) onLists(h func(ctx context.Context) ([]*pleg.Pod, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onList = h
}

func (n *node) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	n.mu.Lock()
	n.lists = append(n.lists, time.Now())
	n.checkDeadline(ctx)
	pods, h := slices.Clone(n.pods), n.onList
	n.mu.Unlock()
	if h != nil {
		return h(ctx)
	}
	return pods, nil
}

func (n *node) PodStatus(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	h := n.begin(ctx, pod.UID)
	defer n.end(pod.UID)
	if h != nil {
		if status, err := h(ctx, pod); status != nil || err != nil {
			return status, err
		}
	}
	return plegtest.Status(pod), nil
}

func (n *node) begin(ctx context.Context, uid pleg.PodUID) hook {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checkDeadline(ctx)
	n.inspected[uid]++
	n.inFlight[uid]++
	all := 0
	for _, count := range n.inFlight {
		all += count
	}
	n.peak, n.peakOfPod = max(n.peak, all), max(n.peakOfPod, n.inFlight[uid])
	return n.inspect[uid]
}

func (n *node) end(uid pleg.PodUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight[uid]--
}

func (n *node) checkDeadline(ctx context.Context) {
	if _, ok := ctx.Deadline(); !ok {
		n.unbounded++
	}
}

// takes is the hook of inspections that last a while.
func takes(d time.Duration) hook {
	return func(ctx context.Context, _ *pleg.Pod) (*pleg.PodStatus, error) {
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// hung is the hook of inspections that end with their context.
func hung(ctx context.Context, _ *pleg.Pod) (*pleg.PodStatus, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// failing is the hook of inspections that fail.
func failing(err error) hook {
	return func(context.Context, *pleg.Pod) (*pleg.PodStatus, error) { return nil, err }
}

// rig is a pipeline at work on a node, in a bubble.
type rig struct {
	*pipeline.Pipeline
	node *node
	stop func() error
}

// newRig returns a pipeline that is yet to run.
func newRig(t *testing.T, o pipeline.Options) *rig {
	t.Helper()
	n := newNode()
	o.Runtime = n
	p, err := pipeline.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return &rig{Pipeline: p, node: n}
}

// run starts the pipeline and waits until the first list has settled.
func (r *rig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Hour):
			panic("Run has not returned an hour after its context ended")
		}
	})
	t.Cleanup(func() { _ = r.stop() })
	synctest.Wait()
}

// relist waits until the next list, and all that can be done at its time, is
// done.
func (r *rig) relist() {
	time.Sleep(relistPeriod)
	synctest.Wait()
}

func (r *rig) subscribe(t *testing.T, buffer int) <-chan pleg.Event {
	t.Helper()
	s, err := r.Subscribe(pipeline.SubscribeOptions{Buffer: buffer})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s.Events()
}

// told returns the words of the events that wait, those of each pod.
func told(events <-chan pleg.Event) map[pleg.PodUID]string {
	pods := make(map[pleg.PodUID][]pleg.Event)
	for _, ev := range drain(events) {
		pods[ev.PodUID] = append(pods[ev.PodUID], ev)
	}
	words := make(map[pleg.PodUID]string)
	for uid, evs := range pods {
		words[uid] = plegtest.Words(evs...)
	}
	return words
}

// requireTold fails unless exactly these events wait; want alternates between a
// pod and its words.
func requireTold(t *testing.T, events <-chan pleg.Event, want ...string) {
	t.Helper()
	synctest.Wait()
	got := told(events)
	for i := 0; i < len(want); i += 2 {
		uid := pleg.PodUID(want[i])
		if got[uid] != want[i+1] {
			t.Errorf("events of pod %s: %q, want %q", uid, got[uid], want[i+1])
		}
		delete(got, uid)
	}
	for uid, words := range got {
		t.Errorf("events of pod %s: %q, want none", uid, words)
	}
}
