package hints_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

type containerEvent = runtimeapi.ContainerEventResponse

type badEvent struct {
	spoil func(*containerEvent)
	// incomplete: the event is counted as incomplete.
	incomplete bool
}

var badEvents = map[string]badEvent{
	"no sandbox status":          {func(e *containerEvent) { e.PodSandboxStatus = nil }, true},
	"an empty sandbox status":    {func(e *containerEvent) { e.PodSandboxStatus = &runtimeapi.PodSandboxStatus{} }, true},
	"a sandbox without metadata": {func(e *containerEvent) { e.PodSandboxStatus.Metadata = nil }, true},
	"no container statuses":      {func(e *containerEvent) { e.ContainersStatuses = nil }, true},
	"a nil container status":     {func(e *containerEvent) { e.ContainersStatuses = append(e.ContainersStatuses, nil) }, true},
	"empty":                      {func(e *containerEvent) { *e = containerEvent{} }, true},
	"an unknown kind":            {func(e *containerEvent) { e.ContainerEventType = 44 }, true},
	"a negative kind":            {func(e *containerEvent) { e.ContainerEventType = math.MinInt32 }, true},
	"an unknown state":           {func(e *containerEvent) { e.ContainersStatuses[0].State = 44 }, true},
	"an unknown sandbox state":   {func(e *containerEvent) { e.PodSandboxStatus.State = -7 }, true},
	"no time":                    {func(e *containerEvent) { e.CreatedAt = 0 }, true},
	"an hour ahead":              {func(e *containerEvent) { e.CreatedAt += int64(time.Hour) }, true},
	"at the end of time":         {func(e *containerEvent) { e.CreatedAt = math.MaxInt64 }, true},
	"at the beginning of time":   {func(e *containerEvent) { e.CreatedAt = math.MinInt64 }, true},
	"before 1970":                {func(e *containerEvent) { e.CreatedAt = -1 }, true},
	"ids that no list has": {func(e *containerEvent) {
		e.ContainerId, e.PodSandboxStatus, e.ContainersStatuses = "nothing", nil, nil
	}, true},
	"a pod that no list has": {func(e *containerEvent) {
		*e = *started("nobody", "nowhere", "nothing")
	}, false},
	"a restart that did not happen": {func(e *containerEvent) { e.ContainersStatuses[0].CreatedAt++ }, false},
	"a removal that did not happen": {func(e *containerEvent) {
		e.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	}, false},
}

// A bad event costs at most a list: the pipeline goes on, within two relist periods
// it knows the truth about all pods, and it knows no pod that never existed.
func TestBadEventsCostNoTruth(t *testing.T) {
	for name, tt := range badEvents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, tt.run)
		})
	}
}

func (tt badEvent) run(t *testing.T) {
	spoiled := make(chan *containerEvent)
	h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{}, grpc.WithStreamInterceptor(injecting(spoiled)))
	pods := h.Populate(simruntime.Population{Pods: 3, Containers: 1})
	time.Sleep(3 * time.Second)
	before := kit.Metric(t, h.Metrics, "pleg_incomplete_runtime_events_total")
	bad := started(pods[0].UID, pods[0].Sandboxes[0].ID, pods[0].Containers[0].ID)
	tt.spoil(bad)
	spoiled <- bad
	time.Sleep(time.Second)
	if got := kit.Metric(t, h.Metrics, "pleg_incomplete_runtime_events_total") - before; (got == 1) != tt.incomplete {
		t.Errorf("counted as incomplete: %v times, want it: %t", got, tt.incomplete)
	}
	h.Update(func(tx *simruntime.Txn) error {
		return tx.ExitContainer(pods[0].Containers[0].ID, 7, simruntime.ReasonError)
	})
	time.Sleep(2*periodWithEvents + 10*time.Second)
	h.RequireTruth()
	if got := len(h.Cache().List()); got != len(pods) {
		t.Errorf("%d pods in the cache, want %d", got, len(pods))
	}
}

// injecting adds events to the event stream, as if the runtime had sent them.
func injecting(events <-chan *containerEvent) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || method != runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
			return stream, err
		}
		i := &injected{ClientStream: stream, extra: events, own: make(chan *containerEvent), ended: make(chan error, 1)}
		go i.receive(ctx)
		return i, nil
	}
}

// injected is an event stream with other events in it. Its goroutine ends with the
// stream.
type injected struct {
	grpc.ClientStream
	own   chan *containerEvent
	extra <-chan *containerEvent
	ended chan error
}

func (i *injected) receive(ctx context.Context) {
	for {
		ev := new(containerEvent)
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
	var ev *containerEvent
	select {
	case ev = <-i.own:
	case ev = <-i.extra:
	case err := <-i.ended:
		return err
	}
	proto.Merge(m.(*containerEvent), ev)
	return nil
}
