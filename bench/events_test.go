package bench_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

// eventBatch is the number of events in one iteration of BenchmarkEvents.
const eventBatch = 20_000

// BenchmarkEvents reads CRI events over a unix socket. The sender, in the same process,
// writes prepared bytes. The reader is the CRI client alone, or the client and the hinter.
func BenchmarkEvents(b *testing.B) {
	for _, event := range []string{"whole", "partial"} {
		raw, err := proto.Marshal(benchEvent(event == "whole"))
		if err != nil {
			b.Fatal(err)
		}
		b.Run("reader=cri/event="+event, func(b *testing.B) { benchEvents(b, raw, readAlone) })
		b.Run("reader=hinter/event="+event, func(b *testing.B) { benchEvents(b, raw, readByHinter) })
	}
}

func benchEvents(b *testing.B, raw []byte, read func(context.Context, *countedEvents) error) {
	socket := filepath.Join(b.TempDir(), "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	batches := make(chan struct{})
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawBytes{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); method != runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
			return status.Error(codes.Unimplemented, method) // a probe
		}
		for range batches {
			for range eventBatch {
				if err := stream.SendMsg(raw); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	client, err := cri.New(socket, cri.Options{})
	if err != nil {
		b.Fatal(err)
	}
	events := &countedEvents{client: client, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(b.Context())
	var run errgroup.Group
	run.Go(func() error { return server.Serve(listener) })
	run.Go(func() error { return read(ctx, events) })
	b.ReportAllocs()
	for b.Loop() {
		batches <- struct{}{}
		<-events.done
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/eventBatch, "ns/event")
	b.ReportMetric(float64(b.N)*eventBatch/b.Elapsed().Seconds(), "events/s")
	cancel()
	close(batches)
	server.Stop()
	if err := run.Wait(); !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	if err := client.Close(); err != nil {
		b.Error(err)
	}
}

// rawBytes sends bytes as they are.
type rawBytes struct{}

func (rawBytes) Name() string { return "proto" }

func (rawBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawBytes) Unmarshal(mem.BufferSlice, any) error { return nil }

// countedEvents are the client's; done gets a value for each batch that was read.
type countedEvents struct {
	client *cri.Client
	count  int
	done   chan struct{}
}

func (e *countedEvents) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	return e.client.WatchEvents(ctx, opened, func(h pleg.Hint) {
		hint(h)
		if e.count++; e.count%eventBatch == 0 {
			e.done <- struct{}{}
		}
	})
}

func readAlone(ctx context.Context, events *countedEvents) error {
	return errors.Join(events.WatchEvents(ctx, func() {}, func(pleg.Hint) {}), context.Cause(ctx))
}

func readByHinter(ctx context.Context, events *countedEvents) error {
	h, err := hinter.New(hinter.Options{
		Events: events, Lister: noLists{}, Relists: 8, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	observations := make(chan stage.Observation)
	var run errgroup.Group
	run.Go(func() error { return h.Run(ctx, observations) })
	for range observations {
	}
	return run.Wait()
}

// noLists stands for the lister.
type noLists struct{}

func (noLists) RelistNow()             {}
func (noLists) RelistSoon()            {}
func (noLists) StreamOpened()          {}
func (noLists) StreamEnded()           {}
func (noLists) LastSuccess() time.Time { return time.Time{} }

// benchEvent is the start of the second of two containers, as containerd sends
// it, or what is left of it without the sandbox's status.
func benchEvent(whole bool) *runtimeapi.ContainerEventResponse {
	labels := map[string]string{
		"io.kubernetes.pod.uid": "8f5c1f3e-6c3c-4b0e-9a55-0d6f2b1f7a10", "io.kubernetes.pod.name": "web-5d4f8c7b9-x2x2x",
		"io.kubernetes.pod.namespace": "shop", "io.kubernetes.container.name": "main",
	}
	ids := []string{
		"3b1f0c9f0d6f4b5f8c7a9e2d1c0b3a4f5e6d7c8b9a0f1e2d3c4b5a6f7e8d9c0b",
		"9c0b3b1f0c9f0d6f4b5f8c7a9e2d1c0b3a4f5e6d7c8b9a0f1e2d3c4b5a6f7e8d",
		"7e8d9c0b3b1f0c9f0d6f4b5f8c7a9e2d1c0b3a4f5e6d7c8b9a0f1e2d3c4b5a6f",
	}
	now := time.Now().UnixNano()
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: ids[2], ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: now,
	}
	if !whole {
		return event
	}
	event.PodSandboxStatus = &runtimeapi.PodSandboxStatus{
		Id: ids[0], CreatedAt: now, Labels: labels, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.88.0.17"},
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web-5d4f8c7b9-x2x2x", Namespace: "shop", Uid: labels["io.kubernetes.pod.uid"]},
		Annotations: map[string]string{"kubernetes.io/config.seen": "2026-11-21T12:00:00.000000000Z", "kubernetes.io/config.source": "api"},
	}
	for i, id := range ids[1:] {
		event.ContainersStatuses = append(event.ContainersStatuses, &runtimeapi.ContainerStatus{
			Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: []string{"sidecar", "main"}[i]}, CreatedAt: now, StartedAt: now,
			State: runtimeapi.ContainerState_CONTAINER_RUNNING, Image: &runtimeapi.ImageSpec{Image: "registry.example/shop/web:1.2.3"},
			ImageRef: "registry.example/shop/web@sha256:" + id, Labels: labels, LogPath: "/var/log/pods/shop_web/main/0.log",
			Annotations: map[string]string{"io.kubernetes.container.hash": "6b7c3c3a", "io.kubernetes.container.restartCount": "0"},
		})
	}
	return event
}
