package simruntime_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// openIdle opens a stream and does not read it.
func openIdle(t *testing.T, client cri.RuntimeServiceClient) context.CancelFunc {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if _, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return cancel
}

func TestOnlySlowClientLosesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntime(t, simruntime.Options{EventBuffer: 10})
		client := overBufconn(t, rt)
		openIdle(t, client)
		w := watch(t, overBufconn(t, rt))
		const n = 500
		for i := range n {
			if _, err := rt.AddPod(simruntime.PodSpec{UID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if got := len(w.seen()); got != 2*n {
			t.Errorf("the client that reads got %d events, want %d", got, 2*n)
		}
		if e := rt.Stats().Events; e.Dropped == 0 || e.Dropped > 2*n {
			t.Errorf("%d events dropped", e.Dropped)
		}
	})
}

func TestStalledClientDelaysOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRuntime(t, simruntime.Options{EventBuffer: 10})
		if err := rt.SetEventFaults(simruntime.EventFaults{Stall: true}); err != nil {
			t.Fatal(err)
		}
		client := overBufconn(t, rt)
		leave := openIdle(t, client)
		other := overBufconn(t, rt)
		w := watch(t, other)

		run := func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := other.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
				Metadata: &cri.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: fmt.Sprint(i)},
			}})
			return err
		}
		made := 0
		for ; made < 1000; made++ {
			if err := run(made); err != nil {
				break
			}
		}
		if made == 0 || made == 1000 {
			t.Fatalf("%d sandboxes made, want some until the stall", made)
		}
		before := len(w.created())
		if before > made {
			t.Errorf("the client that reads got %d, more than %d made", before, made)
		}
		if got := len(listPods(t, other, nil)); got != made+1 { // reads stay fine
			t.Errorf("%d sandboxes listed, want %d", got, made+1)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- run(made + 1) }()
		synctest.Wait()
		select {
		case err := <-blocked:
			t.Fatalf("RunPodSandbox returned %v while a client stalls", err)
		default:
		}
		leave()
		if err := <-blocked; err != nil {
			t.Errorf("after the client left: %v", err)
		}
		if got := w.created(); !slices.Equal(got, reversed(sandboxIDs(rt.Pods()))) {
			t.Errorf("the client that reads got %d creations, want all %d in order", len(got), made+2)
		}
		if e := rt.Stats().Events; e.Dropped != 0 {
			t.Errorf("%d events dropped", e.Dropped)
		}
	})
}

func reversed(in []string) []string {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}
