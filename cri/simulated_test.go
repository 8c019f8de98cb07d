package cri_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The client itself is a runtime as the pipeline needs it.
func TestClientIsARuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		rt.Populate(simruntime.Population{Pods: 3, Containers: 2})
		plegtest.CheckRuntime(t, client)
	})
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
