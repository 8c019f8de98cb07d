package cri_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// The status calls of 40 of 100 pods hang, some for the sandbox and some for the
// container. The events of the others arrive as they change, and the 40 recover once
// the runtime answers again.
func TestHungPodsDelayNoOtherPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pods, hung, steps = 100, 40, 8
		rt, client := simulated(t, cri.Options{})
		all, err := rt.Populate(simruntime.Population{Pods: pods, Containers: 1})
		must(t, err)
		hangs := hangStatusCalls(t, rt, all[:hung])
		p, err := pipeline.New(pipeline.Options{Runtime: client})
		must(t, err)
		sub, err := p.Subscribe(pipeline.SubscribeOptions{Buffer: 100_000})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(30*time.Second + pipeline.DefaultRelistPeriod/2) // between two lists
		for len(sub.Events()) > 0 {
			<-sub.Events()
		}
		received := make(chan int)
		go func() { received <- countInTime(t, sub, hangs) }()
		for range steps {
			restartAll(t, rt, all[hung:])
			time.Sleep(pipeline.DefaultRelistPeriod)
		}
		if got := len(p.Quarantined()); got < hung-pipeline.DefaultInspectors/2 { // a pod that hangs for the first time is not in quarantine yet
			t.Errorf("%d of %d pods in quarantine", got, hung)
		}
		rt.ClearAll()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for uid := range hangs {
			if st, err := p.Cache().Get(uid); err != nil || len(st.Containers) != 1 {
				t.Errorf("pod %s 10 s after the runtime answers again: %+v, %v", uid, st, err)
			}
		}
		if got := p.Quarantined(); len(got) > 0 {
			t.Errorf("%d pods in quarantine, want none", len(got))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		if got, want := <-received, 2*steps*(pods-hung); got != want {
			t.Errorf("%d events of the other pods, want %d", got, want)
		}
	})
}

// hangStatusCalls makes a status call of each pod hang and returns the pods.
func hangStatusCalls(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod) map[pleg.PodUID]bool {
	t.Helper()
	hangs := make(map[pleg.PodUID]bool)
	for n, p := range pods {
		rpc := []string{"PodSandboxStatus", "ContainerStatus"}[n%2]
		_, err := rt.Inject(simruntime.Fault{RPC: rpc, PodUID: p.UID, Hang: true})
		must(t, err)
		hangs[pleg.PodUID(p.UID)] = true
	}
	return hangs
}

// countInTime counts the events until the subscription ends, except those of these
// pods, and requires that each arrives without delay.
func countInTime(t *testing.T, sub *pipeline.Subscription, except map[pleg.PodUID]bool) (n int) {
	for ev := range sub.Events() {
		if except[ev.PodUID] {
			continue
		}
		if late := time.Since(ev.ObservedAt); late > 0 {
			t.Errorf("%v is late by %v", ev, late)
		}
		n++
	}
	return n
}

// restartAll restarts the running container of each pod.
func restartAll(t *testing.T, rt *simruntime.Runtime, pods []simruntime.Pod) {
	t.Helper()
	for _, pod := range pods {
		now, _ := rt.Pod(pod.UID)
		running := slices.IndexFunc(now.Containers, func(c simruntime.Container) bool { return c.State == simruntime.Running })
		_, err := rt.RestartContainer(now.Containers[running].ID)
		must(t, err)
	}
}
