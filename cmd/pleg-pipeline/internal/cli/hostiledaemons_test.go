package cli_test

import (
	"context"
	"math"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// evil is a text that clears a screen, sets colors, changes the direction of text, forges a line and
// is long.
var evil = "\x1b[2J\x1b]0;title\x07\u009b31m\u202egpj.\u2066\x00\x7f\r\npleg-pipeline: all is well" + strings.Repeat("n", 12<<10)

// hostileDaemons returns new daemons by their fault. Package client tests daemons whose lists are
// too large or whose streams end.
func hostileDaemons() map[string]*hostile.Daemon {
	return map[string]*hostile.Daemon{
		"another service": nil, "no bytes": nil,
		"evil text":               evilText(),
		"evil errors":             evilErrors(codes.PermissionDenied, 0),
		"evil errors, retried":    evilErrors(codes.Internal, 0),
		"trailers beyond a limit": evilErrors(codes.Internal, 128<<10),
		"values without meaning":  nonsense(),
		"no answers": {
			OnWatch:  func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return silent(stream.Context()) },
			OnList:   func(stream hostile.ListStream) error { return silent(stream.Context()) },
			OnStatus: func(ctx context.Context) (*plegv1.GetStatusResponse, error) { return nil, silent(ctx) },
			OnLookup: func(ctx context.Context) (*plegv1.LookupResponse, error) { return nil, silent(ctx) },
		},
	}
}

func silent(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func answer[M any](m *M, err error) func(context.Context) (*M, error) {
	return func(context.Context) (*M, error) { return m, err }
}

func sendPods(pods ...*plegv1.Pod) func(hostile.ListStream) error {
	return func(stream hostile.ListStream) error {
		for _, pod := range pods {
			if err := stream.Send(&plegv1.ListPodsResponse{Pod: pod}); err != nil {
				return err
			}
		}
		return nil
	}
}

func evilText() *hostile.Daemon {
	return &hostile.Daemon{
		OnWatch: hostile.Events(
			&plegv1.Event{
				Epoch: evil, Seq: 2, Type: plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, PodUid: evil, PodName: evil, PodNamespace: evil,
				ContainerId: evil, ContainerName: evil, Reason: evil,
			},
			&plegv1.Event{Type: plegv1.EventType_EVENT_TYPE_GAP, Epoch: evil, Seq: 2, Reason: evil},
			&plegv1.Event{Type: plegv1.EventType_EVENT_TYPE_SYNCED, Epoch: evil, Seq: 2},
		),
		OnList: sendPods(&plegv1.Pod{Uid: evil, Error: evil, Status: &plegv1.PodStatus{
			Name: evil, Namespace: evil, Ips: []string{evil},
			Containers: []*plegv1.ContainerStatus{{Id: evil, Name: evil, Image: evil, Reason: evil, Message: evil, State: 3}},
		}}),
		OnStatus: answer(&plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{
			Error: evil, Quarantined: []*plegv1.QuarantinedPod{{Uid: evil, Name: evil, Namespace: evil, Error: evil}},
			Overdue: []*plegv1.Inspection{{PodUid: evil, PodName: evil, Call: &plegv1.Call{Method: evil, Container: evil}}},
		}}, nil),
		OnLookup: answer(&plegv1.LookupResponse{
			PodUid: evil, PodName: evil, PodNamespace: evil, CgroupPath: evil, PodLabels: map[string]string{evil: evil},
			Container: &plegv1.ContainerStatus{Id: evil, Name: evil, Image: evil, Reason: evil, Message: evil},
		}, nil),
	}
}

func evilErrors(code codes.Code, trailers int) *hostile.Daemon {
	err := status.Error(code, evil)
	trailer := func(stream interface{ SetTrailer(metadata.MD) }) error {
		stream.SetTrailer(metadata.Pairs("text", strings.Repeat("n", trailers)))
		return err
	}
	return &hostile.Daemon{
		OnWatch:  func(_ *plegv1.WatchRequest, stream hostile.WatchStream) error { return trailer(stream) },
		OnList:   func(stream hostile.ListStream) error { return trailer(stream) },
		OnStatus: answer[plegv1.GetStatusResponse](nil, err),
		OnLookup: answer[plegv1.LookupResponse](nil, status.Error(codes.NotFound, evil)),
	}
}

// nonsense contains empty messages, unknown numbers and times of no calendar.
func nonsense() *hostile.Daemon {
	late, early := &timestamppb.Timestamp{Seconds: math.MaxInt64, Nanos: -7}, &timestamppb.Timestamp{Seconds: math.MinInt64}
	return &hostile.Daemon{
		OnWatch: hostile.Events(
			nil, &plegv1.Event{}, &plegv1.Event{Epoch: "e", Seq: 2, Type: 4711, PodUid: "a", ObservedAt: late},
			&plegv1.Event{Epoch: "e", Seq: 1, Type: -1, PodUid: "a", ObservedAt: early},
			&plegv1.Event{Epoch: "e", Seq: math.MaxUint64, Type: plegv1.EventType_EVENT_TYPE_SYNCED},
		),
		OnList: sendPods(nil, &plegv1.Pod{}, &plegv1.Pod{Uid: "a", CurrentAsOf: late, Status: &plegv1.PodStatus{
			ObservedAt: late, Containers: []*plegv1.ContainerStatus{{}, {State: 4711, CreatedAt: late, StartedAt: early, FinishedAt: late}},
			Sandboxes: []*plegv1.SandboxStatus{{}},
		}}),
		OnStatus: answer(&plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{
			At: late, Relist: &plegv1.RelistStatus{Took: &durationpb.Duration{Seconds: math.MaxInt64, Nanos: -1}, Success: late, Failures: 1},
			Quarantined: []*plegv1.QuarantinedPod{{Uid: "a", Since: late, NextTry: late, Hung: math.MaxUint32}},
		}}, nil),
		OnLookup: answer(&plegv1.LookupResponse{RemovedAt: late, Container: &plegv1.ContainerStatus{State: -1, CreatedAt: late, FinishedAt: late}}, nil),
	}
}
