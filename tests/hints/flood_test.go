package hints_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// patience is for what happens at once on a machine that has time.
const patience = 3 * time.Minute

// flood is one kind of event, sent as fast as possible.
type flood struct {
	event func(pods []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse
	// lines is the number of log lines about it; if negative, it depends on the
	// machine and is at most 1.
	lines int
}

var floods = map[string]flood{
	"unknown ids": {func(_ []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{
			ContainerId: fmt.Sprint("nobody-", n), CreatedAt: time.Now().UnixNano(),
			ContainerEventType: runtimeapi.ContainerEventType(n % 7),
		}
	}, 1},
	"incomplete, unknown pods": {func(_ []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{
			ContainerId: "c", CreatedAt: time.Now().UnixNano(), PodSandboxStatus: &runtimeapi.PodSandboxStatus{
				Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: fmt.Sprint("nobody-", n)},
			},
		}
	}, 1},
	"complete, unknown pods": {func(_ []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
		return started(fmt.Sprint("nobody-", n), fmt.Sprint("s-", n), fmt.Sprint("c-", n))
	}, -1},
	"incomplete, known pods": {func(pods []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{
			ContainerId: pods[n%len(pods)].Containers[0].ID, CreatedAt: time.Now().UnixNano(),
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		}
	}, -1},
	"complete, known pods": {func(pods []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
		pod := pods[n%len(pods)]
		return started(pod.UID, pod.Sandboxes[0].ID, pod.Containers[0].ID)
	}, -1},
}

// A flood of events costs neither memory nor the truth. Every event is counted; if
// lists have to stand in for events, that is logged once.
func TestFloodOfEventsIsBounded(t *testing.T) {
	for name, f := range floods {
		t.Run(name, f.run)
	}
}

// started is a complete event: the container of a pod runs.
func started(uid, sandbox, container string) *runtimeapi.ContainerEventResponse {
	labels := map[string]string{"io.kubernetes.pod.uid": uid}
	return &runtimeapi.ContainerEventResponse{
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
	rt, err := simruntime.New(simruntime.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := rt.Populate(simruntime.Population{Pods: 10, Containers: 1})
	if err != nil {
		t.Fatal(err)
	}
	begin := make(chan struct{})
	var peak uint64
	source := &eventSource{sent: make(chan error, 1), play: func(send func(*runtimeapi.ContainerEventResponse) error) (err error) {
		<-begin
		for n := 0; n < *floodEvents && err == nil; n++ {
			if err = send(f.event(pods, n)); n%1000 == 0 {
				peak = max(peak, heapObjects())
			}
		}
		return err
	}}
	var log kit.Log
	registry := prometheus.NewPedanticRegistry()
	pipe := runMixed(t, rt, source, pipeline.Options{Logger: log.Logger(), Registerer: registry})
	newerThan(t, pipe, pods[0].UID, time.Now())
	runtime.GC()
	base := heapObjects()

	began := time.Now()
	close(begin)
	if err := <-source.sent; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	requireExitSeen(t, rt, pipe, pods[0])
	requireCount(t, registry, "pleg_runtime_events_total", float64(*floodEvents))
	t.Logf("%.0f events/s sent, %.0f read", float64(*floodEvents)/took.Seconds(), float64(*floodEvents)/time.Since(began).Seconds())
	requirePodsAgain(t, pipe, pods)
	runtime.GC()
	after := heapObjects()
	t.Logf("heap: %d MiB before, %d at most, %d after", base>>20, peak>>20, after>>20)
	if peak > base+128<<20 || after > base+16<<20 {
		t.Errorf("the heap grew from %d MiB to %d and shrank to %d, want at most 128 and 16 more", base>>20, peak>>20, after>>20)
	}
	if got := log.Count("hints cannot be followed one by one"); got > 1 || f.lines >= 0 && got != f.lines {
		t.Errorf("%d log lines about the flood, want %d, or at most 1", got, f.lines)
	}
}

func newerThan(t *testing.T, pipe *pipeline.Pipeline, uid string, at time.Time) *pleg.PodStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := pipe.Cache().GetNewerThan(ctx, pleg.PodUID(uid), at)
	if err != nil {
		t.Fatalf("pod %s: %v", uid, err)
	}
	return st
}

// requireExitSeen makes the pod's container exit and requires the exit code from a
// requested relist.
func requireExitSeen(t *testing.T, rt *simruntime.Runtime, pipe *pipeline.Pipeline, pod simruntime.Pod) {
	t.Helper()
	if err := rt.ExitContainer(pod.Containers[0].ID, 7, simruntime.ReasonError); err != nil {
		t.Fatal(err)
	}
	exited := time.Now()
	pipe.RequestRelist(pleg.PodUID(pod.UID))
	if c := newerThan(t, pipe, pod.UID, exited).Container(pleg.ContainerID(pod.Containers[0].ID)); c == nil || c.ExitCode != 7 {
		t.Errorf("after the flood: %+v, want the exit code 7", c)
	}
}

// requirePodsAgain requires that the next list of all pods leaves only these in the
// cache.
func requirePodsAgain(t *testing.T, pipe *pipeline.Pipeline, pods []simruntime.Pod) {
	t.Helper()
	pipe.RequestReinspect(pleg.PodUID(pods[1].UID)) // it leads to a list of all pods
	asked := time.Now()
	for _, pod := range pods {
		newerThan(t, pipe, pod.UID, asked)
	}
	eventually(t, func() (string, bool) {
		got := len(pipe.Cache().List())
		return fmt.Sprintf("%d pods in the cache, want %d", got, len(pods)), got == len(pods)
	})
}

// heapObjects returns the bytes of all objects on the heap, garbage included.
func heapObjects() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// requireCount waits until a counter has reached a value, and fails if it exceeds it.
func requireCount(t *testing.T, registry *prometheus.Registry, name string, want float64) {
	t.Helper()
	eventually(t, func() (string, bool) {
		got := kit.Metric(t, registry, name)
		if got > want {
			t.Fatalf("%s is %v, want %v", name, got, want)
		}
		return fmt.Sprintf("%s is %v, want %v", name, got, want), got == want
	})
}

// eventually looks every 10 ms. If look never returns true, it fails after patience
// with what was seen last.
func eventually(t *testing.T, look func() (seen string, ok bool)) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; <-ticker.C {
		seen, ok := look()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(seen)
		}
	}
}

// eventSource is a runtime with events only.
type eventSource struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	play func(send func(*runtimeapi.ContainerEventResponse) error) error
	sent chan error // what play returned
}

func (s *eventSource) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	s.sent <- s.play(stream.Send)
	<-stream.Context().Done()
	return nil
}

// mixed is a runtime whose events come from another client.
type mixed struct {
	*cri.Client
	events *cri.Client
}

func (m mixed) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	return m.events.WatchEvents(ctx, opened, hint)
}

// runMixed runs a pipeline with the lists of rt and the events of source, on real
// sockets, until the test ends.
func runMixed(t *testing.T, rt *simruntime.Runtime, source *eventSource, o pipeline.Options) *pipeline.Pipeline {
	t.Helper()
	dir := t.TempDir()
	m := mixed{newCRI(t, filepath.Join(dir, "cri.sock")), newCRI(t, filepath.Join(dir, "events.sock"))}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, source)
	events, backend := listen(t, filepath.Join(dir, "events.sock")), listen(t, filepath.Join(dir, "cri.sock"))
	kit.Run(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, server.Stop)
		return cmp.Or(server.Serve(events), ctx.Err())
	})
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, backend) })
	o.Runtime, o.Events = m, pipeline.EventsAuto
	pipe, err := pipeline.New(o)
	if err != nil {
		t.Fatal(err)
	}
	kit.Run(t, pipe.Run)
	return pipe
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func newCRI(t *testing.T, path string) *cri.Client {
	t.Helper()
	client, err := cri.New(path, cri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return client
}
