package pipeline_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// A bad event costs no more than a list: the pipeline goes on, what it knows of
// all pods is the truth within two relist periods, and of pods that never were
// it knows nothing.
func TestBadEventsCostNoTruth(t *testing.T) {
	type event = runtimeapi.ContainerEventResponse
	for name, tt := range map[string]struct {
		spoil func(*event)
		// incomplete is set where the event is counted as such.
		incomplete bool
	}{
		"no sandbox status":            {func(e *event) { e.PodSandboxStatus = nil }, true},
		"an empty sandbox status":      {func(e *event) { e.PodSandboxStatus = &runtimeapi.PodSandboxStatus{} }, true},
		"a sandbox without metadata":   {func(e *event) { e.PodSandboxStatus.Metadata = nil }, true},
		"no container statuses":        {func(e *event) { e.ContainersStatuses = nil }, true},
		"a nil container status":       {func(e *event) { e.ContainersStatuses = append(e.ContainersStatuses, nil) }, true},
		"nothing at all":               {func(e *event) { *e = event{} }, true},
		"a kind with no name":          {func(e *event) { e.ContainerEventType = 44 }, true},
		"a negative kind":              {func(e *event) { e.ContainerEventType = math.MinInt32 }, true},
		"a state with no name":         {func(e *event) { e.ContainersStatuses[0].State = 44 }, true},
		"a sandbox state with no name": {func(e *event) { e.PodSandboxStatus.State = -7 }, true},
		"no time":                      {func(e *event) { e.CreatedAt = 0 }, true},
		"an hour ahead":                {func(e *event) { e.CreatedAt += int64(time.Hour) }, true},
		"at the end of time":           {func(e *event) { e.CreatedAt = math.MaxInt64 }, true},
		"at the beginning of time":     {func(e *event) { e.CreatedAt = math.MinInt64 }, true},
		"before 1970":                  {func(e *event) { e.CreatedAt = -1 }, true},
		"ids that no list has": {func(e *event) {
			e.ContainerId, e.PodSandboxStatus, e.ContainersStatuses = "nothing", nil, nil
		}, true},
		"a pod that no list has": {func(e *event) {
			*e = *started("nobody", "nowhere", "nothing")
		}, false},
		"it runs again, which it does not": {func(e *event) { e.ContainersStatuses[0].CreatedAt++ }, false},
		"removed, which it is not": {func(e *event) {
			e.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spoiled := make(chan *event)
				h := followOver(t, simruntime.Options{Seed: 1}, pipeline.Options{}, []grpc.DialOption{grpc.WithStreamInterceptor(injecting(spoiled))})
				pods := h.populate(simruntime.Population{Pods: 3, Containers: 1})
				time.Sleep(3 * time.Second)
				before := h.metric("pleg_incomplete_runtime_events_total")
				bad := started(pods[0].UID, pods[0].Sandboxes[0].ID, pods[0].Containers[0].ID)
				tt.spoil(bad)
				spoiled <- bad
				time.Sleep(time.Second)
				if got := h.metric("pleg_incomplete_runtime_events_total") - before; (got == 1) != tt.incomplete {
					t.Errorf("counted as incomplete: %v times, want it: %t", got, tt.incomplete)
				}
				h.update(func(tx *simruntime.Txn) error {
					return tx.ExitContainer(pods[0].Containers[0].ID, 7, simruntime.ReasonError)
				})
				time.Sleep(2*hintedPeriod + 10*time.Second)
				h.wantTruth()
				if got := len(h.pipe.Cache().List()); got != len(pods) {
					t.Errorf("%d pods in the cache, want %d", got, len(pods))
				}
			})
		})
	}
}

// injecting puts events into a stream of them as if the runtime had sent them.
func injecting(events <-chan *runtimeapi.ContainerEventResponse) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || method != runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
			return stream, err
		}
		i := &injected{ClientStream: stream, codec: codecOf(opts), extra: events, own: make(chan *runtimeapi.ContainerEventResponse), ended: make(chan error, 1)}
		go i.receive(ctx)
		return i, nil
	}
}

// injected is a stream of events with others in it. The end of the stream ends
// its goroutine.
type injected struct {
	grpc.ClientStream
	codec encoding.CodecV2
	own   chan *runtimeapi.ContainerEventResponse
	extra <-chan *runtimeapi.ContainerEventResponse
	ended chan error
}

func (i *injected) receive(ctx context.Context) {
	for {
		ev := new(runtimeapi.ContainerEventResponse)
		if err := i.ClientStream.RecvMsg(ev); err != nil {
			i.ended <- err
			return
		}
		select {
		case i.own <- ev:
		case <-ctx.Done():
		}
	}
}

func (i *injected) RecvMsg(m any) error {
	var ev *runtimeapi.ContainerEventResponse
	select {
	case ev = <-i.own:
	case ev = <-i.extra:
	case err := <-i.ended:
		return err
	}
	raw, err := proto.Marshal(ev)
	if err != nil {
		return err
	}
	return i.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m)
}

// codecOf returns the codec that a call asks for.
func codecOf(opts []grpc.CallOption) encoding.CodecV2 {
	for _, o := range opts {
		if forced, ok := o.(grpc.ForceCodecV2CallOption); ok {
			return forced.CodecV2
		}
	}
	return encoding.GetCodecV2("proto")
}
