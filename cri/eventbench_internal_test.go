package cri

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

// eventsOf returns the encoded events of a node on which containers of random pods
// crash and are made anew: what a container runtime sends for a kubelet's pods,
// some 5 kB each.
func eventsOf(pods, events int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	alive := make([]*eventPodModel, pods)
	for i := range alive {
		alive[i] = newEventPodModel(i)
	}
	raws := make([][]byte, 0, events)
	for len(raws) < events {
		raw, err := proto.Marshal(alive[rng.IntN(pods)].step())
		if err != nil {
			panic(err)
		}
		raws = append(raws, raw)
	}
	return raws
}

// eventPodModel is a pod whose first container crashes again and again.
type eventPodModel struct {
	pod, attempt, phase int
	sandbox             *runtimeapi.PodSandboxStatus
	containers          []*runtimeapi.ContainerStatus
}

func newEventPodModel(pod int) *eventPodModel {
	sandboxes, _ := nodeItems(pod + 1)
	s := sandboxes[pod]
	m := &eventPodModel{pod: pod, sandbox: &runtimeapi.PodSandboxStatus{
		Id: s.GetId(), Metadata: s.GetMetadata(), CreatedAt: s.GetCreatedAt(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.1.0.%d", pod)}, RuntimeHandler: "runc",
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}}},
	}}
	m.containers = []*runtimeapi.ContainerStatus{m.container(1), m.container(0)}
	return m
}

func (m *eventPodModel) container(i int) *runtimeapi.ContainerStatus {
	c := nodeContainer(m.pod, i)
	c.Annotations["io.kubernetes.container.restartCount"] = fmt.Sprint(m.attempt)
	st := &runtimeapi.ContainerStatus{
		Id: fmt.Sprintf("c%s%03d", c.GetId()[4:], m.attempt), Metadata: &runtimeapi.ContainerMetadata{Name: c.GetMetadata().GetName(), Attempt: uint32(m.attempt)},
		State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: c.GetCreatedAt() + int64(m.attempt), StartedAt: c.GetCreatedAt() + int64(m.attempt) + 1,
		Image: c.GetImage(), ImageRef: c.GetImageRef(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		LogPath: "/var/log/pods/production_web/container/0.log", ImageId: c.GetImageId(),
	}
	for _, path := range []string{"/etc/hosts", "/dev/termination-log", "/var/run/secrets/kubernetes.io/serviceaccount", "/data", "/config"} {
		st.Mounts = append(st.Mounts, &runtimeapi.Mount{
			ContainerPath: path, HostPath: "/var/lib/kubelet/pods/" + string(podUID(m.pod)) + path, SelinuxRelabel: true,
		})
	}
	return st
}

// step returns the next event: the container ends, the one before it is removed,
// and the next one is created and started.
func (m *eventPodModel) step() *runtimeapi.ContainerEventResponse {
	now := m.containers[len(m.containers)-1]
	kind := runtimeapi.ContainerEventType(0)
	switch m.phase % 4 {
	case 0:
		kind, now.State, now.ExitCode, now.FinishedAt, now.Reason = stoppedEvent, runtimeapi.ContainerState_CONTAINER_EXITED, 1, now.StartedAt+1, "Error"
	case 1:
		if kind = deletedEvent; len(m.containers) > 2 {
			now = m.containers[1]
			m.containers = append(m.containers[:1:1], m.containers[2:]...)
		}
	case 2:
		m.attempt++
		now = m.container(0)
		kind, now.State, now.StartedAt = createdEvent, runtimeapi.ContainerState_CONTAINER_CREATED, 0
		m.containers = append(m.containers, now)
	case 3:
		kind, now.State, now.StartedAt = startedEvent, runtimeapi.ContainerState_CONTAINER_RUNNING, now.CreatedAt+1
	}
	m.phase++
	return &runtimeapi.ContainerEventResponse{
		ContainerId: now.GetId(), ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: m.sandbox, ContainersStatuses: m.containers,
	}
}

// BenchmarkEventDecode makes hints of events.
func BenchmarkEventDecode(b *testing.B) {
	raws := eventsOf(110, 20_000)
	b.Run("decoder=memory", func(b *testing.B) {
		e := newEvent()
		benchmarkDecode(b, raws, func(raw []byte) (*event, error) { return e, e.read(raw) })
	})
	b.Run("decoder=generated", func(b *testing.B) { benchmarkDecode(b, raws, generated) })
}

func benchmarkDecode(b *testing.B, raws [][]byte, decode func([]byte) (*event, error)) {
	b.ReportAllocs()
	v := testConverter()
	n := 0
	before := cpuTime(b)
	for b.Loop() {
		e, err := decode(raws[n%len(raws)])
		if err != nil {
			b.Fatal(err)
		}
		if h := v.hint(e, time.Now()); h.Pod == nil {
			b.Fatalf("event %d is not whole: %+v", n, h)
		}
		n++
	}
	reportEvents(b, n, before)
}

// reportEvents reports the processor's time, since another process may run beside
// this one.
func reportEvents(b *testing.B, events int, before time.Duration) {
	b.Helper()
	used := cpuTime(b) - before
	b.ReportMetric(float64(used.Nanoseconds())/1000/float64(events), "cpu-us/event")
	b.ReportMetric(float64(events)/used.Seconds(), "events/cpu-s")
}

// BenchmarkEventIntake receives the events of a flood from another process: in a
// hinter that nobody waits for, and in a function that does nothing.
func BenchmarkEventIntake(b *testing.B) {
	socket := startNode(b)
	client, err := New(socket, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	b.Run("to=nowhere", func(b *testing.B) {
		events := make(chan struct{}, 1<<16)
		benchmarkIntake(b, events, func(ctx context.Context) error {
			return client.WatchEvents(ctx, func() {}, func(pleg.Hint) { events <- struct{}{} })
		})
	})
	b.Run("to=hinter", func(b *testing.B) {
		h, err := hinter.New(hinter.Options{
			Events: client, Lister: idleLister{}, Relists: 1, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		observations := make(chan stage.Observation)
		benchmarkIntake(b, observations, func(ctx context.Context) error { return h.Run(ctx, observations) })
	})
}

// benchmarkIntake counts what comes out, each a pass of the loop.
func benchmarkIntake[T any](b *testing.B, out <-chan T, run func(context.Context) error) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	<-out
	before := cpuTime(b)
	for b.Loop() {
		<-out
	}
	reportEvents(b, b.N, before)
	cancel()
	for {
		select {
		case <-out:
		case err := <-ended:
			if ctx.Err() == nil {
				b.Errorf("ended with %v", err)
			}
			return
		}
	}
}

// idleLister lists nothing, whatever is asked of it.
type idleLister struct{}

func (idleLister) RelistNow()             {}
func (idleLister) StreamOpened()          {}
func (idleLister) StreamEnded()           {}
func (idleLister) LastSuccess() time.Time { return time.Time{} }
