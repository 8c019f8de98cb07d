package main

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/benchtest"
	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newNode returns a node and a client of its runtime.
func newNode(t *testing.T) (*node, *cri.Client) {
	t.Helper()
	runtime, client := benchtest.NewRuntime(t)
	return &node{runtime: runtime}, client
}

func (n *node) order(t *testing.T, o control.Order) control.Answer {
	t.Helper()
	return n.handle(t.Context(), o)
}

// list returns the pods, after waiting until the runtime serves.
func list(t *testing.T, client *cri.Client) []*pleg.Pod {
	t.Helper()
	for {
		pods, err := client.ListPods(t.Context())
		if err == nil {
			return pods
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestBurstChangesThatManyPods(t *testing.T) {
	n, client := newNode(t)
	if a := n.order(t, control.Order{Do: control.NodePopulate, Pods: 5, Containers: 2}); a.Changed != 5 || a.Err != "" {
		t.Fatalf("populate = %+v", a)
	}
	list(t, client)
	if a := n.order(t, control.Order{Do: control.NodeBurst, Pods: 3, Change: "exit"}); a.Changed != 3 || a.Err != "" {
		t.Fatalf("burst = %+v", a)
	}
	running, exited := 0, 0
	for _, pod := range list(t, client) {
		for _, c := range pod.Containers {
			switch c.State {
			case pleg.StateRunning:
				running++
			case pleg.StateExited:
				exited++
			}
		}
	}
	if running != 4 || exited != 6 {
		t.Errorf("%d containers run and %d have exited, want 4 and 6", running, exited)
	}
	stats := n.order(t, control.Order{Do: control.NodeStats})
	for _, rpc := range []string{"ListContainers", "ListPodSandbox"} {
		if got := stats.RPCs[rpc].Calls; got != 1 {
			t.Errorf("%d calls of %s since the burst, want 1", got, rpc)
		}
	}
}

func TestFinishedPodsDoNotRun(t *testing.T) {
	n, client := newNode(t)
	n.order(t, control.Order{Do: control.NodePopulate, Pods: 2, Containers: 2, Finished: true})
	for _, pod := range list(t, client) {
		if pod.Running() || len(pod.Containers) != 2 {
			t.Errorf("pod %s runs, or has not 2 containers: %v", pod.UID, pod.Containers)
		}
	}
}

func TestShapeSetsLatencyAndLimit(t *testing.T) {
	n, client := newNode(t)
	n.order(t, control.Order{Do: control.NodePopulate, Pods: 1, Containers: 1})
	if a := n.order(t, control.Order{Do: control.NodeShape, Profile: "node", Limit: 1}); a.Err != "" {
		t.Fatal(a.Err)
	}
	var stats control.Answer
	// On a busy machine the two calls of a list do not always overlap.
	for try := 0; try < 100 && stats.PeakArrived < 2; try++ {
		n.order(t, control.Order{Do: control.NodeReset})
		list(t, client)
		stats = n.order(t, control.Order{Do: control.NodeStats})
	}
	if got := stats.RPCs["ListContainers"].TimeMS; got < 30 {
		t.Errorf("ListContainers took %v ms, want at least the 30 of the profile", got)
	}
	if stats.PeakInFlight != 1 || stats.PeakArrived != 2 {
		t.Errorf("peak in flight %d of %d, want 1 of 2", stats.PeakInFlight, stats.PeakArrived)
	}
}

func TestHangStopsStatusCalls(t *testing.T) {
	n, client := newNode(t)
	n.order(t, control.Order{Do: control.NodePopulate, Pods: 2, Containers: 1})
	if a := n.order(t, control.Order{Do: control.NodeHang, Pods: 1}); a.Changed != 1 {
		t.Fatalf("hang = %+v", a)
	}
	hung := n.runtime.Pods()[0].UID
	for _, pod := range list(t, client) {
		ctx, cancel := context.WithCancel(t.Context())
		if string(pod.UID) == hung {
			cancel() // the call would hang
		}
		_, err := client.PodStatus(ctx, pod, nil)
		cancel()
		if (err != nil) != (string(pod.UID) == hung) {
			t.Errorf("pod %s: %v; hung is %s", pod.UID, err, hung)
		}
	}
}

func TestChurnLogsNewContainers(t *testing.T) {
	n, _ := newNode(t)
	n.order(t, control.Order{Do: control.NodePopulate, Pods: 3, Containers: 1})
	a := n.order(t, control.Order{Do: control.NodeChurn, Rate: 100, Seconds: 0.1})
	if a.Err != "" || a.Changed == 0 || len(a.Log) == 0 {
		t.Fatalf("churn = %+v", a)
	}
	for _, arrival := range a.Log {
		if arrival.ID == "" || arrival.UnixNS == 0 {
			t.Errorf("log has %+v", arrival)
		}
	}
}

func TestHandleExplainsBadOrders(t *testing.T) {
	n, _ := newNode(t)
	for want, o := range map[string]control.Order{
		"unknown order":        {Do: "explode"},
		"unknown change":       {Do: control.NodeBurst, Change: "explode"},
		"latency profile":      {Do: control.NodeShape, Profile: "fast"},
		"hang: 3 pods of 0":    {Do: control.NodeHang, Pods: 3},
		"must not be negative": {Do: control.NodePopulate, Pods: -1},
		"want at most 100000":  {Do: control.NodePopulate, Pods: 1e9},
	} {
		if a := n.order(t, o); !strings.Contains(a.Err, want) {
			t.Errorf("%+v: error %q, want %q in it", o, a.Err, want)
		}
	}
	if err := run(t.Context(), "", false); err == nil || !strings.Contains(err.Error(), "-socket is required") {
		t.Errorf("no socket: %v", err)
	}
}
