package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each field of a request for events reaches the subscription: without it the first message would
// not be as the row says.
func TestEveryFieldOfAWatch(t *testing.T) {
	const synced, started = plegv1.EventType_EVENT_TYPE_SYNCED, plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED
	for name, row := range map[string]struct {
		request *plegv1.WatchRequest
		want    func(f *fixture, m *plegv1.WatchResponse) bool
	}{
		"replay":   {&plegv1.WatchRequest{Replay: true}, func(_ *fixture, m *plegv1.WatchResponse) bool { return m.GetEvent().GetReplayed() }},
		"since":    {&plegv1.WatchRequest{Since: timestamppb.New(time.Unix(1, 0))}, func(_ *fixture, m *plegv1.WatchResponse) bool { return m.GetEvent().GetSeq() == 1 }},
		"position": {&plegv1.WatchRequest{ResumeAfter: &plegv1.Position{Epoch: "?", Seq: 1}}, func(_ *fixture, m *plegv1.WatchResponse) bool { return m.GetEvent().GetSeq() == 2 }},
		"bookmarks": {&plegv1.WatchRequest{Bookmarks: true}, func(_ *fixture, m *plegv1.WatchResponse) bool {
			return m.GetEvent().GetType() == plegv1.EventType_EVENT_TYPE_BOOKMARK
		}},
		"statuses": {&plegv1.WatchRequest{Replay: true, Statuses: true}, func(_ *fixture, m *plegv1.WatchResponse) bool {
			return len(m.GetEvent().GetStatus().GetContainers()) == 1
		}},
		"no statuses": {&plegv1.WatchRequest{Replay: true}, func(_ *fixture, m *plegv1.WatchResponse) bool { return m.GetEvent().GetStatus() == nil }},
		"name": {&plegv1.WatchRequest{Name: "auditor", Replay: true}, func(f *fixture, _ *plegv1.WatchResponse) bool {
			kit.RequireMetric(f, f.Metrics, 0, "pleg_subscriber_gaps_total", "auditor")
			return true
		}},
		"namespace":    {&plegv1.WatchRequest{Replay: true, Namespaces: []string{"shop"}}, isOf("shop/b")},
		"pod":          {&plegv1.WatchRequest{Replay: true, PodUids: []string{"shop/b"}}, isOf("shop/b")},
		"selector":     {&plegv1.WatchRequest{Replay: true, LabelSelector: "pod=b"}, isOf("shop/b")},
		"types":        {&plegv1.WatchRequest{Replay: true, Types: []plegv1.EventType{started}}, func(_ *fixture, m *plegv1.WatchResponse) bool { return m.GetEvent().GetType() == started }},
		"no sandboxes": {&plegv1.WatchRequest{Replay: true, OmitSandboxes: true}, func(_ *fixture, m *plegv1.WatchResponse) bool { return !m.GetEvent().GetSandbox() }},
		"nothing": {&plegv1.WatchRequest{Replay: true, Namespaces: []string{"none"}}, func(_ *fixture, m *plegv1.WatchResponse) bool {
			return m.GetEvent().GetType() == synced
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
				f.Runtime.Set("a", "/s=exited a1=exited")
				f.Runtime.Set("shop/b", "/s2=running b1=running")
				kit.Relist(2)
				if at := row.request.GetResumeAfter(); at != nil {
					at.Epoch = f.Epoch()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if m, err := f.mustWatch(ctx, f.client(), row.request).Recv(); err != nil || !row.want(f, m) {
					t.Errorf("%v: got %v, %v", row.request, m, err)
				}
			})
		})
	}
}

func isOf(uid string) func(*fixture, *plegv1.WatchResponse) bool {
	return func(_ *fixture, m *plegv1.WatchResponse) bool { return m.GetEvent().GetPodUid() == uid }
}

// A client that reads late learns how far it is behind, in events and in time.
func TestLagIsSent(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
		stream := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		f.setLargePods(20)
		kit.Relist(5)
		for {
			m, err := stream.Recv()
			kit.Must(t, err)
			if m.GetLagEvents() > 0 && m.GetLagAge().AsDuration() >= 5*time.Second {
				return
			}
			if m.GetEvent().GetSeq() == 20 {
				t.Fatal("all events have come, none with a lag of some seconds")
			}
		}
	})
}

// One connection has at most Options.MaxStreams calls; a further one waits for its turn.
func TestCallsOfAConnectionAreBounded(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxStreams: 2}, func(t *testing.T, f *fixture) {
		c := f.client()
		f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		second, end := context.WithCancel(t.Context())
		f.mustWatch(second, c, &plegv1.WatchRequest{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.GetStatus(ctx, &plegv1.GetStatusRequest{})
		wantStatus(t, "the third call", err, codes.DeadlineExceeded, "")
		end()
		synctest.Wait()
		_, err = c.GetStatus(t.Context(), &plegv1.GetStatusRequest{})
		kit.Must(t, err)
	})
}

// The service describes itself, for grpcurl and the like.
func TestReflection(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(f.connect()).ServerReflectionInfo(t.Context())
		kit.Must(t, err)
		kit.Must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "pleg.v1.PLEG"},
		}))
		if m, err := stream.Recv(); err != nil || len(m.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("got %v, %v, want the description of the service", m, err)
		}
	})
}
