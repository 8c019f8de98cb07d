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

// Forty of a hundred pods of a real runtime hang, some in the status of their
// sandbox and some in that of their container. The others are told of as they
// change, and those forty once the runtime answers again.
func TestHungPodsOfARuntimeHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, sick, steps = 100, 40, 8
		rt, client := simulated(t, cri.Options{})
		all, err := rt.Populate(simruntime.Population{Pods: pods, Containers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for n, p := range all[:sick] {
			rpc := []string{"PodSandboxStatus", "ContainerStatus"}[n%2]
			if _, err := rt.Inject(simruntime.Fault{RPC: rpc, PodUID: p.UID, Hang: true}); err != nil {
				t.Fatal(err)
			}
		}
		p, err := pipeline.New(pipeline.Options{Runtime: client})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := p.Subscribe(pipeline.SubscribeOptions{Buffer: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(30*time.Second + pipeline.DefaultRelistPeriod/2) // between two lists
		for len(sub.Events()) > 0 {
			<-sub.Events()
		}
		hangs := make(map[pleg.PodUID]bool)
		for _, pod := range all[:sick] {
			hangs[pleg.PodUID(pod.UID)] = true
		}
		told := make(chan int)
		go func() {
			n := 0
			for ev := range sub.Events() {
				if hangs[ev.PodUID] {
					continue
				}
				if late := time.Since(ev.ObservedAt); late > 0 {
					t.Errorf("%v is late by %v", ev, late)
				}
				n++
			}
			told <- n
		}()
		for range steps {
			for _, pod := range all[sick:] {
				now, _ := rt.Pod(pod.UID)
				running := slices.IndexFunc(now.Containers, func(c simruntime.Container) bool { return c.State == simruntime.Running })
				if _, err := rt.RestartContainer(now.Containers[running].ID); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(pipeline.DefaultRelistPeriod)
		}
		if got := len(p.Quarantined()); got < sick-pipeline.DefaultInspectors/2 { // who hangs for the first time is not there yet
			t.Errorf("%d of %d pods in quarantine", got, sick)
		}
		rt.ClearAll()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, pod := range all[:sick] {
			if st, err := p.Cache().Get(pleg.PodUID(pod.UID)); err != nil || len(st.Containers) != 1 {
				t.Errorf("pod %s 10 s after the runtime answers again: %+v, %v", pod.UID, st, err)
			}
		}
		if got := p.Quarantined(); len(got) > 0 {
			t.Errorf("%d pods in quarantine, want none", len(got))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		if got, want := <-told, 2*steps*(pods-sick); got != want {
			t.Errorf("%d events of the pods that are well, want %d", got, want)
		}
	})
}
