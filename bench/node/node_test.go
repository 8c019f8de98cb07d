package node_test

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/benchtest"
	"github.com/pleg-pipeline/pleg-pipeline/bench/node"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// count lists, and returns the number of containers in each state.
func count(t *testing.T, client *cri.Client) map[pleg.State]int {
	t.Helper()
	pods, err := client.ListPods(t.Context())
	must(t, err)
	states := make(map[pleg.State]int)
	for _, pod := range pods {
		for _, c := range pod.Containers {
			states[c.State]++
		}
	}
	return states
}

func TestBurstChangesThatManyPods(t *testing.T) {
	n, client := benchtest.NewNode(t)
	must(t, n.Populate(5, 2))
	count(t, client)
	n.Burst(3, simruntime.Exit)
	if got := count(t, client); got[pleg.StateRunning] != 4 || got[pleg.StateExited] != 6 {
		t.Errorf("containers are %v, want 4 running and 6 exited", got)
	}
	for _, rpc := range []string{"ListContainers", "ListPodSandbox"} {
		if got := n.Stats().RPCs[rpc].Calls; got != 1 {
			t.Errorf("%d calls of %s since the burst, want 1", got, rpc)
		}
	}
	must(t, n.PopulateFinished(2, 2))
	if got := count(t, client); got[pleg.StateExited] != 10 {
		t.Errorf("containers are %v, want 4 more that have exited", got)
	}
}

func TestShapeSetsLatencyAndLimit(t *testing.T) {
	n, client := benchtest.NewNode(t)
	must(t, n.Populate(1, 1))
	must(t, n.Shape("node", 1))
	var stats node.Stats
	// On a busy machine the two calls of a list do not always overlap.
	for try := 0; try < 100 && stats.PeakArrived < 2; try++ {
		n.Reset()
		count(t, client)
		stats = n.Stats()
	}
	if got := stats.RPCs["ListContainers"].Time.Milliseconds(); got < 30 {
		t.Errorf("ListContainers took %v ms, want at least the 30 of the profile", got)
	}
	if stats.PeakInFlight != 1 || stats.PeakArrived != 2 {
		t.Errorf("peak in flight %d of %d, want 1 of 2", stats.PeakInFlight, stats.PeakArrived)
	}
	if n.Shape("fast", 0) == nil {
		t.Error("an unknown profile was accepted")
	}
}

func TestHangStopsStatusCalls(t *testing.T) {
	n, client := benchtest.NewNode(t)
	must(t, n.Populate(2, 1))
	must(t, n.Hang(1))
	pods, err := client.ListPods(t.Context())
	must(t, err)
	slices.SortFunc(pods, func(a, b *pleg.Pod) int { return b.Sandboxes[0].CreatedAt.Compare(a.Sandboxes[0].CreatedAt) })
	hung := 0
	for i := range pods { // newest first
		ctx, cancel := context.WithCancel(t.Context())
		if i == len(pods)-1 {
			cancel() // the call would hang
		}
		if _, err := client.PodStatus(ctx, pods[i], nil); err != nil {
			hung++
		}
		cancel()
	}
	if hung != 1 || n.Stats().StatusCalls() < 2 {
		t.Errorf("%d of 2 pods hang after %d calls, want 1", hung, n.Stats().StatusCalls())
	}
}

func TestChurnReturnsNewContainers(t *testing.T) {
	n, client := benchtest.NewNode(t)
	must(t, n.Populate(3, 1))
	made, err := n.Churn(t.Context(), 100, 10)
	must(t, err)
	pods, err := client.ListPods(t.Context())
	must(t, err)
	listed := make(map[string]bool)
	for _, p := range pods {
		listed[string(p.Containers[0].ID)] = true
	}
	if len(made) != 10 || len(listed) != 3 {
		t.Fatalf("%d containers made, %d listed; want 10 and 3", len(made), len(listed))
	}
	for _, c := range made[7:] {
		if !listed[c.ID] || c.UnixNS == 0 {
			t.Errorf("%+v is not listed", c)
		}
	}
}
