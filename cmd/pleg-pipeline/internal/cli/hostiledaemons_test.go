package cli_test

import (
	"context"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// hostileDaemons returns new daemons by what is wrong with them.
func hostileDaemons() map[string]*hostile.Daemon {
	daemons := daemonsOfWrongSize()
	maps.Copy(daemons, daemonsOfWrongText())
	maps.Copy(daemons, daemonsOfWrongTimes())
	daemons["another service"], daemons["no bytes"] = nil, nil
	return daemons
}

// daemonsOfWrongSize are daemons that send too much. Package client tests lists that
// are too large.
func daemonsOfWrongSize() map[string]*hostile.Daemon {
	long := strings.Repeat("n", 128<<10)
	trailer := func(stream interface{ SetTrailer(metadata.MD) }) error {
		stream.SetTrailer(metadata.Pairs("text", long))
		return status.Error(codes.Internal, evil+long)
	}
	var uids atomic.Uint64
	return map[string]*hostile.Daemon{
		"long names": {
			OnWatch: hostile.Events(event(func(ev *plegv1.Event) {
				ev.PodName, ev.PodNamespace, ev.ContainerName, ev.Reason = long, long, long, long
			}), synced()),
			OnList:   sendPods(&plegv1.Pod{Uid: long, Status: &plegv1.PodStatus{Name: long, Containers: []*plegv1.ContainerStatus{{Name: long, Message: long}}}}),
			OnLookup: answer(&plegv1.LookupResponse{PodName: long, CgroupPath: long, Container: &plegv1.ContainerStatus{Id: long, Message: long}}, nil),
		},
		"events without end and without Synced": {OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
			for stream.Send(&plegv1.WatchResponse{Event: started(time.Duration(uids.Add(1)).String())}) == nil {
				time.Sleep(time.Second)
			}
			return nil
		}},
		"trailers of a great length": {
			OnWatch:  func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return trailer(stream) },
			OnList:   func(stream hostile.ListStream) error { return trailer(stream) },
			OnLookup: answer[plegv1.LookupResponse](nil, status.Error(codes.NotFound, evil+long)),
		},
	}
}

// daemonsOfWrongText are daemons that send text and numbers without meaning.
func daemonsOfWrongText() map[string]*hostile.Daemon {
	return map[string]*hostile.Daemon{
		"evil text": {
			OnWatch: hostile.Events(event(func(ev *plegv1.Event) {
				ev.Epoch, ev.PodUid, ev.PodName, ev.PodNamespace, ev.ContainerId, ev.ContainerName, ev.Reason = evil, evil, evil, evil, evil, evil, evil
			}), event(func(ev *plegv1.Event) { ev.Type, ev.Epoch, ev.Reason = plegv1.EventType_EVENT_TYPE_GAP, evil, evil }), synced()),
			OnList: sendPods(&plegv1.Pod{Uid: evil, Error: evil, Status: &plegv1.PodStatus{
				Name: evil, Namespace: evil, Ips: []string{evil}, Containers: []*plegv1.ContainerStatus{{Id: evil, Name: evil, Image: evil, Reason: evil, State: 3}},
			}}),
			OnStatus: answer(&plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{
				Error: evil, Quarantined: []*plegv1.QuarantinedPod{{Uid: evil, Name: evil, Namespace: evil, Error: evil}},
				Overdue: []*plegv1.Inspection{{PodUid: evil, PodName: evil, Call: &plegv1.Call{Method: evil, Container: evil}}},
			}}, nil),
			OnLookup: answer(&plegv1.LookupResponse{
				PodUid: evil, PodName: evil, PodNamespace: evil, CgroupPath: evil, PodLabels: map[string]string{evil: evil},
				Container: &plegv1.ContainerStatus{Id: evil, Name: evil, Image: evil, Reason: evil, Message: evil},
			}, nil),
		},
		"evil errors": {
			OnWatch: func(*plegv1.WatchRequest, hostile.WatchStream) error {
				return status.Error(codes.PermissionDenied, evil)
			},
			OnList:   func(hostile.ListStream) error { return status.Error(codes.Internal, evil) },
			OnStatus: answer[plegv1.GetStatusResponse](nil, status.Error(codes.Internal, evil)),
			OnLookup: answer[plegv1.LookupResponse](nil, status.Error(codes.NotFound, evil)),
		},
		"empty messages": {
			OnWatch:  hostile.Events(nil, &plegv1.Event{}, nil),
			OnList:   sendPods(nil, &plegv1.Pod{}, &plegv1.Pod{Status: &plegv1.PodStatus{Containers: []*plegv1.ContainerStatus{{}, {}}, Sandboxes: []*plegv1.SandboxStatus{{}}}}),
			OnStatus: answer(&plegv1.GetStatusResponse{}, nil),
		},
		"unknown numbers": {
			OnWatch:  hostile.Events(event(func(ev *plegv1.Event) { ev.Type = 4711 }), event(func(ev *plegv1.Event) { ev.Type = -1 }), synced()),
			OnList:   sendPods(&plegv1.Pod{Uid: "a", Status: &plegv1.PodStatus{Containers: []*plegv1.ContainerStatus{{State: 4711}}}}),
			OnLookup: answer(&plegv1.LookupResponse{Container: &plegv1.ContainerStatus{State: -1}}, nil),
		},
	}
}

// daemonsOfWrongTimes are daemons with times and orders that cannot be, or that send too little.
func daemonsOfWrongTimes() map[string]*hostile.Daemon {
	late := &timestamppb.Timestamp{Seconds: math.MaxInt64, Nanos: -7}
	var seq atomic.Uint64
	return map[string]*hostile.Daemon{
		"numbers that go back, another epoch in each event": {OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
			for {
				n := seq.Add(1)
				ev := event(func(ev *plegv1.Event) { ev.Epoch, ev.Seq = time.Duration(n).String(), 1_000_000-n })
				for _, ev := range []*plegv1.Event{ev, {Type: plegv1.EventType_EVENT_TYPE_BOOKMARK, Epoch: ev.Epoch, Seq: math.MaxUint64}, synced()} {
					if err := stream.Send(&plegv1.WatchResponse{Event: ev}); err != nil {
						return err
					}
				}
				time.Sleep(time.Second)
			}
		}},
		"times of no calendar": {
			OnWatch: hostile.Events(event(func(ev *plegv1.Event) { ev.ObservedAt = late }), event(func(ev *plegv1.Event) { ev.ObservedAt = &timestamppb.Timestamp{Seconds: 253402300799} }), synced()),
			OnList: sendPods(&plegv1.Pod{Uid: "a", CurrentAsOf: late, Status: &plegv1.PodStatus{
				ObservedAt: late, Containers: []*plegv1.ContainerStatus{{CreatedAt: late, StartedAt: &timestamppb.Timestamp{Seconds: math.MinInt64}, FinishedAt: late}},
			}}),
			OnStatus: answer(&plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{
				At: late, Relist: &plegv1.RelistStatus{Took: &durationpb.Duration{Seconds: math.MaxInt64, Nanos: -1}, Success: late, Failures: 1},
				Quarantined: []*plegv1.QuarantinedPod{{Uid: "a", Since: late, NextTry: late, Hung: math.MaxUint32}},
			}}, nil),
			OnLookup: answer(&plegv1.LookupResponse{RemovedAt: late, Container: &plegv1.ContainerStatus{CreatedAt: late, FinishedAt: late}}, nil),
		},
		"streams that end at once": {
			OnWatch: func(*plegv1.WatchRequest, hostile.WatchStream) error { return nil }, OnList: func(hostile.ListStream) error { return nil },
		},
		"streams that end after an event": {
			OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error {
				return stream.Send(&plegv1.WatchResponse{Event: synced()})
			},
		},
		"no answers": {
			OnWatch: func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return silent(stream.Context()) },
			OnList:  func(stream hostile.ListStream) error { return silent(stream.Context()) },
			OnStatus: func(ctx context.Context) (*plegv1.GetStatusResponse, error) {
				return nil, silent(ctx)
			},
			OnLookup: func(ctx context.Context) (*plegv1.LookupResponse, error) { return nil, silent(ctx) },
		},
	}
}
