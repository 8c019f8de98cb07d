package hints_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// flood is one kind of event, sent as fast as possible.
type flood struct {
	event func(pods []simruntime.Pod, n int) *containerEvent
	// lines is the number of log lines about it; if negative, it depends on the
	// machine and is at most 1.
	lines int
}

var floods = map[string]flood{
	"unknown ids": {func(_ []simruntime.Pod, n int) *containerEvent {
		return &containerEvent{
			ContainerId: fmt.Sprint("nobody-", n), CreatedAt: time.Now().UnixNano(),
			ContainerEventType: runtimeapi.ContainerEventType(n % 7),
		}
	}, 1},
	"incomplete, unknown pods": {func(_ []simruntime.Pod, n int) *containerEvent {
		return &containerEvent{
			ContainerId: "c", CreatedAt: time.Now().UnixNano(), PodSandboxStatus: &runtimeapi.PodSandboxStatus{
				Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: fmt.Sprint("nobody-", n)},
			},
		}
	}, 1},
	"complete, unknown pods": {func(_ []simruntime.Pod, n int) *containerEvent {
		return started(fmt.Sprint("nobody-", n), fmt.Sprint("s-", n), fmt.Sprint("c-", n))
	}, -1},
	"incomplete, known pods": {func(pods []simruntime.Pod, n int) *containerEvent {
		return &containerEvent{
			ContainerId: pods[n%len(pods)].Containers[0].ID, CreatedAt: time.Now().UnixNano(),
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		}
	}, -1},
	"complete, known pods": {func(pods []simruntime.Pod, n int) *containerEvent {
		pod := pods[n%len(pods)]
		return started(pod.UID, pod.Sandboxes[0].ID, pod.Containers[0].ID)
	}, -1},
}

// A flood of events costs neither memory nor the truth. Every event is counted; if
// lists have to stand in for events, that is logged once.
func TestFloodOfEventsIsBounded(t *testing.T) {
	for name, f := range floods {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f.run) })
	}
}

// started is a complete event: the container of a pod runs.
func started(uid, sandbox, container string) *containerEvent {
	labels := map[string]string{"io.kubernetes.pod.uid": uid}
	return &containerEvent{
		ContainerId: container, CreatedAt: time.Now().UnixNano(), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: sandbox, Metadata: &runtimeapi.PodSandboxMetadata{Name: "flood", Namespace: "default", Uid: uid}, Labels: labels,
		},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{
			Id: container, Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: labels,
		}},
	}
}

func (f flood) run(t *testing.T) {
	var log kit.Log
	events := make(chan *containerEvent)
	h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{Logger: log.Logger()}, grpc.WithStreamInterceptor(injecting(events)))
	pods := h.Populate(simruntime.Population{Pods: 10, Containers: 1})
	time.Sleep(3 * time.Second)
	before := kit.Metric(t, h.Metrics, "pleg_runtime_events_total")
	runtime.GC()
	base := heapObjects()
	peak := base
	for n := range *floodEvents {
		if events <- f.event(pods, n); n%1000 == 0 {
			peak = max(peak, heapObjects())
		}
	}
	time.Sleep(time.Second) // the flood has one time, and what follows is newer
	if got := kit.Metric(t, h.Metrics, "pleg_runtime_events_total") - before; got != float64(*floodEvents) {
		t.Errorf("%v events counted, want %d", got, *floodEvents)
	}
	requireExitSeen(t, h, pods[0])
	time.Sleep(2 * periodWithEvents)
	h.RequireTruth()
	runtime.GC()
	after := heapObjects()
	t.Logf("heap: %d MiB before, %d at most, %d after", base>>20, peak>>20, after>>20)
	if peak > base+128<<20 || after > base+16<<20 {
		t.Errorf("the heap grew from %d MiB to %d and shrank to %d, want at most 128 and 16 more", base>>20, peak>>20, after>>20)
	}
	if got := log.Count("too many hints"); got > 1 || f.lines >= 0 && got != f.lines {
		t.Errorf("%d log lines about the flood, want %d, or at most 1", got, f.lines)
	}
}

// requireExitSeen makes the pod's container exit unannounced and requires the exit code
// from a requested relist.
func requireExitSeen(t *testing.T, h *kit.Simulation, pod simruntime.Pod) {
	t.Helper()
	setEventFaults(t, h.Node, simruntime.EventFaults{Loss: 1})
	id := pod.Containers[0].ID
	h.Update(func(tx *simruntime.Txn) error { return tx.ExitContainer(id, 7, simruntime.ReasonError) })
	exited := time.Now()
	time.Sleep(time.Millisecond) // a list of this moment may have begun before the exit
	h.RequestRelist(pleg.PodUID(pod.UID))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // the inspections of unknown pods come first
	defer cancel()
	if st, err := h.Cache().GetNewerThan(ctx, pleg.PodUID(pod.UID), exited); err != nil || st.Container(pleg.ContainerID(id)).ExitCode != 7 {
		t.Errorf("after the flood: %+v, %v, want the exit code 7", st, err)
	}
}

// heapObjects returns the bytes of all objects on the heap, garbage included.
func heapObjects() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
