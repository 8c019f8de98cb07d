package cri_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestClientFollowsNode makes changes of all kinds, one at a time. After each, a list, a list
// of each changed pod alone and the last event of each pod must show the runtime's state. A
// list contains the same pointers for all pods that did not change.
func TestClientFollowsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		n := &changingNode{t: t, rt: rt, client: client, events: watchEvents(t, client)}
		n.check("empty", nil)
		for round := range 10 {
			rt.Populate(simruntime.Population{Pods: 3, Containers: 2, Exited: round % 2, Dead: round % 3})
			if round == 5 {
				n.check("all are gone", rt.Burst(len(rt.Pods()), simruntime.Remove))
				wantPods(t, client, 0)
				rt.Populate(simruntime.Population{Pods: 3, Containers: 2})
			}
			n.check("populate", nil)
			n.check("idle", nil)
			for _, change := range []simruntime.Change{simruntime.Restart, simruntime.Exit, simruntime.Replace, simruntime.Remove} {
				n.check(fmt.Sprintf("round %d change %d", round, change), rt.Burst(1+round%4, change))
			}
		}
	})
}

// The client itself is a runtime as the pipeline needs it.
func TestClientIsARuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		rt.Populate(simruntime.Population{Pods: 3, Containers: 2})
		plegtest.CheckRuntime(t, client)
	})
}

type changingNode struct {
	t      *testing.T
	rt     *simruntime.Runtime
	client *cri.Client
	events *watch
	last   map[pleg.PodUID]*pleg.Pod
}

func (n *changingNode) check(step string, changed []pleg.PodUID) {
	n.t.Helper()
	synctest.Wait()
	pods := listPods(n.t, n.client)
	now := make(map[pleg.PodUID]*pleg.Pod)
	for _, p := range pods {
		now[p.UID] = p
		if before := n.last[p.UID]; before != nil && (before != p) != slices.Contains(changed, p.UID) {
			n.t.Errorf("%s: pod %s is the same pointer: %t, want the opposite", step, p.UID, before == p)
		}
	}
	n.last = now
	wantTruth(n.t, step, pods, n.rt.Pods())
	for _, uid := range changed {
		n.checkAlone(step, uid)
	}
	last := make(map[pleg.PodUID]pleg.Hint)
	for len(n.events.hints) > 0 {
		h := <-n.events.hints
		last[h.UID] = h
	}
	for uid, h := range last {
		n.checkHint(step, uid, h)
	}
	time.Sleep(time.Second)
}

// checkAlone lists a pod alone, without a list of all.
func (n *changingNode) checkAlone(step string, uid pleg.PodUID) {
	n.t.Helper()
	var want []*pleg.PodStatus
	if now := n.rt.Pod(uid); now != nil {
		want = append(want, now)
	}
	n.rt.ResetStats()
	got, err := n.client.ListPod(n.t.Context(), uid)
	must(n.t, err)
	wantTruth(n.t, step+", alone", present(got), want)
	if s := n.rt.Stats(); s.Calls() != 2 || s.RPCs["ListPodSandbox"].Calls != 1 || s.RPCs["ListContainers"].Calls != 1 {
		n.t.Errorf("%s: the list of one pod took %+v", step, s.RPCs)
	}
}

// checkHint requires that the last hint of a pod agrees with the runtime.
func (n *changingNode) checkHint(step string, uid pleg.PodUID, h pleg.Hint) {
	n.t.Helper()
	p := n.last[uid]
	if p == nil {
		if !h.Removed || h.Container != h.Sandbox {
			n.t.Errorf("%s: the pod %s is gone; the last hint of it is %+v", step, uid, h)
		}
		return
	}
	if h.PodName != p.Name || h.PodNamespace != p.Namespace {
		n.t.Errorf("%s: the hint %+v is of another pod than %s/%s", step, h, p.Namespace, p.Name)
	}
	listed := slices.Concat(p.Sandboxes, p.Containers)
	i := slices.IndexFunc(listed, func(c *pleg.Container) bool { return c.ID == h.Container })
	if h.Removed != (i < 0) || i >= 0 && (listed[i].Name != h.Name || listed[i].Attempt != h.Attempt || listed[i].State != h.State) {
		n.t.Errorf("%s: the hint %+v is not what is listed in %s", step, h, show([]*pleg.Pod{p}))
	}
	want, err := n.client.PodStatus(n.t.Context(), p, nil)
	must(n.t, err)
	if st := want.Container(h.Container); st != nil && st.State == pleg.StateExited && !reflect.DeepEqual(h.Status, st) {
		n.t.Fatalf("%s: the hint has the status %+v, want %+v", step, h.Status, st)
	}
}

// simulated returns a simulated runtime and a client of it. Both end with the test.
func simulated(t *testing.T, opts cri.Options) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	rt, m := simulation(t, simruntime.Options{Seed: 7, DualStack: true})
	return rt, clientOf(t, m, opts)
}

// simulation serves a simulated runtime until the test ends.
func simulation(t *testing.T, opts simruntime.Options) (*simruntime.Runtime, *kit.Memory) {
	t.Helper()
	rt := simruntime.New(opts)
	m := &kit.Memory{}
	listener := m.Listen()
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, listener) })
	return rt, m
}

// wantTruth requires that pods equal those of the runtime, apart from the labels.
func wantTruth(t *testing.T, step string, pods []*pleg.Pod, now []*pleg.PodStatus) {
	t.Helper()
	want := make([]*pleg.Pod, len(now))
	for i, p := range now {
		want[i] = truth(p)
	}
	unlabelled := make([]*pleg.Pod, len(pods))
	for i, p := range pods {
		plain := *p
		plain.Labels, unlabelled[i] = nil, &plain
	}
	if got, want := show(unlabelled), show(want); got != want {
		t.Fatalf("%s: got\n%swant\n%s", step, got, want)
	}
}

// truth returns a pod of the runtime as a list must show it. Both are newest first.
func truth(p *pleg.PodStatus) *pleg.Pod {
	s := p.Sandboxes[0]
	sandbox := &pleg.Container{ID: s.ID, Name: p.Name, State: pleg.StateExited, CreatedAt: s.CreatedAt}
	if s.Ready {
		sandbox.State = pleg.StateRunning
	}
	pod := &pleg.Pod{UID: p.UID, Name: p.Name, Namespace: p.Namespace, Sandboxes: []*pleg.Container{sandbox}}
	for _, c := range p.Containers {
		pod.Containers = append(pod.Containers, &pleg.Container{
			ID: c.ID, SandboxID: s.ID, Name: c.Name, Attempt: c.Attempt, State: c.State, CreatedAt: c.CreatedAt,
		})
	}
	return pod
}
