package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// Events are sent as fast as they go: greatFlood of the kind that takes most work
// to read, and flood of the others.
const (
	greatFlood = 100_000
	smallFlood = 20_000
)

// patience is for what comes at once on a machine that has time.
const patience = 3 * time.Minute

// A flood of events, bad ones among them, costs neither memory nor the truth. It
// is counted, and where lists have to stand in for events that is logged once.
func TestFloodOfEventsIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		event func(pods []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse
		count int
		lines int // of the log
	}{
		"ids that nothing has": {func(_ []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
			return &runtimeapi.ContainerEventResponse{
				ContainerId: fmt.Sprint("nobody-", n), CreatedAt: time.Now().UnixNano(),
				ContainerEventType: runtimeapi.ContainerEventType(n % 7),
			}
		}, smallFlood, 1},
		"incomplete ones of pods that nothing has": {func(_ []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
			return &runtimeapi.ContainerEventResponse{
				ContainerId: "c", CreatedAt: time.Now().UnixNano(), PodSandboxStatus: &runtimeapi.PodSandboxStatus{
					Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: fmt.Sprint("nobody-", n)},
				},
			}
		}, smallFlood, 1},
		"whole ones of pods that nothing has": {func(_ []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
			return started(fmt.Sprint("nobody-", n), fmt.Sprint("s-", n), fmt.Sprint("c-", n))
		}, smallFlood, -1},
		"incomplete ones of pods that are there": {func(pods []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
			return &runtimeapi.ContainerEventResponse{
				ContainerId: pods[n%len(pods)].Containers[0].ID, CreatedAt: time.Now().UnixNano(),
				ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			}
		}, smallFlood, -1},
		"whole ones of pods that are there": {func(pods []simruntime.Pod, n int) *runtimeapi.ContainerEventResponse {
			pod := pods[n%len(pods)]
			return started(pod.UID, pod.Sandboxes[0].ID, pod.Containers[0].ID)
		}, greatFlood, -1},
	} {
		t.Run(name, func(t *testing.T) { flood(t, tt.event, tt.count, tt.lines) })
	}
}

// started is a whole event: the container of a pod runs.
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

// flood sends so many events of a kind to a pipeline. It wants the log to say so in so
// many lines, or in at most one if lines is negative: whether they can be
// followed one by one then depends on the machine.
func flood(t *testing.T, event func([]simruntime.Pod, int) *runtimeapi.ContainerEventResponse, count, lines int) {
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
		for n := 0; n < count && err == nil; n++ {
			if err = send(event(pods, n)); n%1000 == 0 {
				peak = max(peak, heapObjects())
			}
		}
		return err
	}}
	var log logged
	registry := prometheus.NewPedanticRegistry()
	pipe := runMixed(t, rt, source, pipeline.Options{Logger: log.logger(), Registerer: registry})
	wait := func(uid string, after time.Time) *pipeline.PodStatus {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		st, err := pipe.Cache().GetNewerThan(ctx, pipeline.PodUID(uid), after)
		if err != nil {
			t.Fatalf("pod %s: %v", uid, err)
		}
		return st
	}
	wait(pods[0].UID, time.Now())
	runtime.GC()
	base := heapObjects()

	began := time.Now()
	close(begin)
	if err := <-source.sent; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if err := rt.ExitContainer(pods[0].Containers[0].ID, 7, simruntime.ReasonError); err != nil {
		t.Fatal(err)
	}
	exited := time.Now()
	pipe.RequestRelist(pipeline.PodUID(pods[0].UID))
	if c := wait(pods[0].UID, exited).Container(pleg.ContainerID(pods[0].Containers[0].ID)); c == nil || c.ExitCode != 7 {
		t.Errorf("after the flood: %+v, want the exit code 7", c)
	}
	awaitMetric(t, registry, "pleg_runtime_events_total", float64(count))
	t.Logf("%.0f events/s sent, %.0f read", float64(count)/took.Seconds(), float64(count)/time.Since(began).Seconds())

	pipe.RequestReinspect(pipeline.PodUID(pods[1].UID)) // brings a list of all pods about
	asked := time.Now()
	for _, pod := range pods {
		wait(pod.UID, asked)
	}
	eventually(t, func() (string, bool) {
		got := len(pipe.Cache().List())
		return fmt.Sprintf("%d pods in the cache, want %d", got, len(pods)), got == len(pods)
	})
	runtime.GC()
	after := heapObjects()
	t.Logf("heap: %d MiB before, %d at most, %d after", base>>20, peak>>20, after>>20)
	if peak > base+128<<20 || after > base+16<<20 {
		t.Errorf("the heap grew from %d MiB to %d and came back to %d, want at most 128 and 16 more", base>>20, peak>>20, after>>20)
	}
	if got := log.count("too many hints"); got > 1 || lines >= 0 && got != lines {
		t.Errorf("%d lines of the log tell of the flood, want %d, or 1 at most", got, lines)
	}
}

// heapObjects returns the bytes of all objects on the heap, garbage included.
func heapObjects() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// awaitMetric waits until a counter has reached a value, and wants no more.
func awaitMetric(t *testing.T, registry *prometheus.Registry, name string, want float64) {
	t.Helper()
	eventually(t, func() (string, bool) {
		got := counterOf(t, registry, name)
		if got > want {
			t.Fatalf("%s is %v, want %v", name, got, want)
		}
		return fmt.Sprintf("%s is %v, want %v", name, got, want), got == want
	})
}

// eventually looks every 10 ms, and gives up after patience with what was seen
// last.
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

func counterOf(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// eventSource is a runtime with nothing but events.
type eventSource struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	play func(send func(*runtimeapi.ContainerEventResponse) error) error
	sent chan error // the end of play
}

func (s *eventSource) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	s.sent <- s.play(stream.Send)
	<-stream.Context().Done()
	return nil
}

// mixed is a runtime whose events come from elsewhere.
type mixed struct {
	*cri.Client
	events *cri.Client
}

func (m mixed) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	return m.events.WatchEvents(ctx, opened, hint)
}

// runMixed runs a pipeline with the lists of rt and the events of source, on
// real sockets until the test ends.
func runMixed(t *testing.T, rt *simruntime.Runtime, source *eventSource, o pipeline.Options) *pipeline.Pipeline {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, source)
	var run errgroup.Group
	listener := listen(t, filepath.Join(dir, "events.sock"))
	run.Go(func() error { return server.Serve(listener) })
	backend := listen(t, filepath.Join(dir, "cri.sock"))
	run.Go(func() error { return ignoreCanceled(rt.Serve(ctx, backend)) })
	m := mixed{newCRI(t, filepath.Join(dir, "cri.sock")), newCRI(t, filepath.Join(dir, "events.sock"))}
	o.Runtime, o.Events = m, pipeline.EventsAuto
	pipe, err := pipeline.New(o)
	if err != nil {
		t.Fatal(err)
	}
	run.Go(func() error { return ignoreCanceled(pipe.Run(ctx)) })
	t.Cleanup(func() {
		cancel()
		server.Stop()
		if err := errors.Join(run.Wait(), m.Close(), m.events.Close()); err != nil {
			t.Errorf("end: %v", err)
		}
	})
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
	return client
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
