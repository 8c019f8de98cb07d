package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func wantStatus(t *testing.T, what string, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
		t.Errorf("%s: got %v, want %v and %q", what, err, code, says)
	}
}

// wantText is wantStatus for an error with this text alone.
func wantText(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || status.Convert(err).Message() != text {
		t.Errorf("%s: got %v, want %v: %s", what, err, code, text)
	}
}

// The error of a bad request names the bad field.
func TestBadRequests(t *testing.T) {
	const unspecified, started, synced = plegv1.EventType_EVENT_TYPE_UNSPECIFIED, plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, plegv1.EventType_EVENT_TYPE_SYNCED
	const known = ": known are [ContainerStarted ContainerDied ContainerRemoved PodSync NetworkSetupCompleted NetworkFailed ContainerCreated ContainerCorrected]"
	tests := []struct {
		name    string
		request *plegv1.WatchRequest
		code    codes.Code
		says    string
	}{
		{"selector", &plegv1.WatchRequest{LabelSelector: "a in"}, codes.InvalidArgument, `subscribe: "a in" is not a label selector: "a in" does not begin with KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUES) or KEY notin (VALUES)`},
		{"no type", &plegv1.WatchRequest{Types: []plegv1.EventType{started, unspecified}}, codes.InvalidArgument, "types has an unspecified type"},
		{"unknown type", &plegv1.WatchRequest{Types: []plegv1.EventType{77}}, codes.InvalidArgument, `subscribe: Types has the unknown event type "77"` + known},
		{"mark", &plegv1.WatchRequest{Types: []plegv1.EventType{synced}}, codes.InvalidArgument, `subscribe: Types has the unknown event type "Synced"` + known},
		{"nothing", &plegv1.WatchRequest{ResumeAfter: &plegv1.Position{}}, codes.InvalidArgument, "resume_after has no epoch, so its number 0 may be of another pipeline"},
		{"bare number", &plegv1.WatchRequest{ResumeAfter: &plegv1.Position{Seq: 475}}, codes.InvalidArgument, "resume_after has no epoch, so its number 475 may be of another pipeline"},
		{"name", &plegv1.WatchRequest{Name: strings.Repeat("n", 101)}, codes.InvalidArgument, "name has 101 bytes, the limit is 100"},
		{"size", &plegv1.WatchRequest{Namespaces: slices.Repeat([]string{strings.Repeat("n", 1000)}, 100)}, codes.ResourceExhausted, "larger than max (100300 vs. 65536)"},
	}
	inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
		c := f.client()
		other := f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		for _, tt := range tests {
			_, err := f.watch(t.Context(), c, tt.request)
			if wantStatus(t, tt.name, err, tt.code, tt.says); tt.code == codes.InvalidArgument {
				wantText(t, tt.name, err, tt.code, tt.says)
			}
		}
		_, err := c.GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "a", NewerThan: &timestamppb.Timestamp{Nanos: -1}})
		wantStatus(t, "bad time", err, codes.InvalidArgument, "newer_than: proto:")
		_, err = c.GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{})
		wantText(t, "no pod", err, codes.InvalidArgument, "pod_uid is required")
		_, err = c.GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "a"})
		wantText(t, "unknown pod", err, codes.NotFound, pleg.ErrUnknownPod.Error())
		_, err = c.RequestRelist(t.Context(), &plegv1.RequestRelistRequest{})
		wantText(t, "no pod", err, codes.InvalidArgument, "pod_uid is required")
		err = f.connect().Invoke(t.Context(), "/pleg.v1.PLEG/Nothing", &plegv1.GetStatusRequest{}, &plegv1.GetStatusResponse{})
		wantStatus(t, "unknown method", err, codes.Unimplemented, "unknown method Nothing")
		_, err = c.GetStatus(metadata.AppendToOutgoingContext(t.Context(), "note", strings.Repeat("n", 32<<10)), &plegv1.GetStatusRequest{})
		wantStatus(t, "large header", err, codes.Internal, "header list size")
		longest := f.mustWatch(t.Context(), c, &plegv1.WatchRequest{Name: strings.Repeat("n", 100)})
		f.wantEvent("another watch of the same connection", other, longest)
	})
}

// A connection above the limit is closed at once; the others keep working.
func TestTooManyConnections(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxConnections: 2}, func(t *testing.T, f *fixture) {
		streams := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		second := f.connect()
		f.mustWatch(t.Context(), plegv1.NewPLEGClient(second), &plegv1.WatchRequest{})
		began := time.Now()
		for range 10 {
			_, err := f.watch(t.Context(), f.client(), &plegv1.WatchRequest{})
			wantStatus(t, "one more", err, codes.Unavailable, "")
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the refusals took %v, want that each comes at once", took)
		}
		if n := kit.Metric(t, f.Metrics, "pleg_server_connections"); n != 2 {
			t.Errorf("%v connections in the metrics, want 2", n)
		}
		if n := kit.Metric(t, f.Metrics, "pleg_server_refused_total", "connection"); n < 10 {
			t.Errorf("%v refused connections in the metrics, want one for each client at least", n)
		}
		second.Close()
		synctest.Wait()
		f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		f.wantEvent("the first client", streams)
	})
}

// The health service reports the health of the pipeline. Its streams end with the server.
func TestHealth(t *testing.T) {
	const serving, notServing = healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING
	inBubble(t, pipeline.Options{RelistThreshold: time.Minute}, server.Options{}, func(t *testing.T, f *fixture) {
		c := healthv1.NewHealthClient(f.connect())
		ctx := t.Context()
		check := func(when string, want healthv1.HealthCheckResponse_ServingStatus) {
			t.Helper()
			for _, service := range []string{"", "pleg.v1.PLEG"} {
				r, err := c.Check(ctx, &healthv1.HealthCheckRequest{Service: service})
				if err != nil || r.GetStatus() != want {
					t.Errorf("%s: service %q: %v, %v, want %v", when, service, r, err, want)
				}
			}
		}
		kit.Relist(2)
		check("after a list", serving)
		f.Runtime.SetListFault(plegtest.Fail(errors.New("the runtime is down")))
		kit.Relist(58)
		check("before the threshold", serving)
		kit.Relist(4)
		check("after the threshold", notServing)
		f.Runtime.SetListFault(nil)
		kit.Relist(2)
		check("after another list", serving)

		stream, err := c.Watch(ctx, &healthv1.HealthCheckRequest{})
		kit.Must(t, err)
		if r, err := stream.Recv(); err != nil || r.GetStatus() != serving {
			t.Errorf("watched %v, %v, want %v", r, err, serving)
		}
		go func() { _ = f.stopServer() }()
		for err == nil {
			_, err = stream.Recv()
		}
		wantText(t, "the end", err, codes.Unavailable, "the server is shutting down")
	})
}

// Before its first list a pipeline is not healthy, also at once.
func TestHealthBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(kit.New(t, pipeline.Options{}).Pipeline, server.Options{})
		kit.Must(t, err)
		dial, _ := kit.Serve(t, s.Serve)
		c := healthv1.NewHealthClient(kit.Connect(t, dial))
		for _, service := range []string{"", "pleg.v1.PLEG"} {
			r, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
				t.Errorf("service %q: %v, %v, want NOT_SERVING", service, r, err)
			}
		}
	})
}

// Serve returns early if its listener fails.
func TestServeEndsWithItsListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(kit.New(t, pipeline.Options{}).Pipeline, server.Options{})
		kit.Must(t, err)
		l := bufconn.Listen(1 << 10)
		time.AfterFunc(time.Second, func() { l.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Serve(ctx, l); errors.Unwrap(err) == nil || err.Error() != "serve on bufconn: closed" {
			t.Errorf("Serve = %v, want the error of the listener", err)
		}
		if err := s.ListenAndServe(ctx, ""); err == nil || err.Error() != "listen on : the path of the socket is empty" {
			t.Errorf("ListenAndServe = %v, want that it cannot listen", err)
		}
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

// The metrics leave with the last Serve, so that the next server can use the registerer. Limits are those of the server.
func TestMetricsLeaveWithTheLastServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{})
		reg := prometheus.NewPedanticRegistry()
		registered := func() int {
			families, err := reg.Gather()
			kit.Must(t, err)
			return len(families)
		}
		s, err := server.New(p.Pipeline, server.Options{Registerer: reg, MaxConnections: 2, MaxWatchers: 1})
		kit.Must(t, err)
		dialFirst, first := kit.Serve(t, s.Serve)
		dialSecond, second := kit.Serve(t, s.Serve)
		dials := []func(context.Context) (net.Conn, error){dialFirst, dialSecond} // they count together
		for n, dial := range dials {
			stream, err := plegv1.NewPLEGClient(kit.Connect(t, dial)).Watch(t.Context(), &plegv1.WatchRequest{})
			kit.Must(t, err)
			if header, err := stream.Header(); err != nil || (header == nil) != (n == 1) {
				t.Errorf("watch %d: %v, %v, want that the second is refused", n, header, err)
			}
		}
		for _, dial := range dials {
			_, err := plegv1.NewPLEGClient(kit.Connect(t, dial)).GetStatus(t.Context(), &plegv1.GetStatusRequest{})
			wantStatus(t, "a third connection", err, codes.Unavailable, "")
		}
		for _, stop := range []func() error{first, second} {
			s.Close() // does nothing
			if registered() == 0 {
				t.Error("no metrics while it serves")
			}
			kit.Must(t, stop())
		}
		if n := registered(); n != 0 {
			t.Errorf("%d metrics after the last Serve has returned", n)
		}
		_, err = server.New(p.Pipeline, server.Options{Registerer: reg})
		kit.Must(t, err)
		s.Close()
		if registered() == 0 {
			t.Error("the Close of a server that has served takes the metrics of the next")
		}
	})
}

// Serve returns no error if its context ends, whatever the cause.
func TestServeUntilADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(kit.New(t, pipeline.Options{}).Pipeline, server.Options{})
		kit.Must(t, err)
		_, stop := kit.Serve(t, func(ctx context.Context, l net.Listener) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return s.Serve(ctx, l)
		})
		time.Sleep(2 * time.Minute)
		kit.Must(t, stop())
	})
}

// When the server ends, every call ends with UNAVAILABLE: at once for clients that read, within the
// grace period for other clients.
func TestShutdown(t *testing.T) {
	inBubble(t, pipeline.Options{Inspectors: 100}, server.Options{}, func(t *testing.T, f *fixture) {
		reading := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{Replay: true})
		asleep := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		if m, err := reading.Recv(); err != nil || m.GetEvent().GetType() != plegv1.EventType_EVENT_TYPE_SYNCED {
			t.Fatalf("got %v, %v, want SYNCED", m, err)
		}
		waited := make(chan error)
		go func() {
			_, err := f.client().GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "a", NewerThan: timestamppb.New(time.Now().Add(time.Hour))})
			waited <- err
		}()
		synctest.Wait()
		begin := time.Now()
		if err := f.stopServer(); err != nil {
			t.Errorf("Serve = %v, want nil: its context has ended", err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v, want no time", took)
		}
		for _, stream := range []grpc.ServerStreamingClient[plegv1.WatchResponse]{reading, asleep} {
			_, err := stream.Recv()
			wantText(t, "the stream", err, codes.Unavailable, "the server is shutting down")
		}
		wantText(t, "the call", <-waited, codes.Unavailable, "the server is shutting down")
	})
}

// If the pipeline ends first, its watchers get what was published, and then UNAVAILABLE.
func TestPipelineEndsFirst(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
		stream := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		f.Runtime.Set("a", "c=running")
		kit.Relist(1)
		kit.Must(t, f.Stop())
		if m, err := stream.Recv(); err != nil || m.GetEvent().GetContainerId() != "c" {
			t.Errorf("got %v, %v, want the event of c", m, err)
		}
		_, err := stream.Recv()
		wantText(t, "the end", err, codes.Unavailable, pleg.ErrStopped.Error())
	})
}

// Clients that do not read delay the shutdown at most by the grace period.
func TestShutdownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 500
		f := newFixture(t, pipeline.Options{Inspectors: pods}, server.Options{})
		f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{Replay: true}) // and never reads
		for range 4 {
			kit.Fill(f.Runtime, pods, "c=running")
			kit.Relist(1)
			kit.Fill(f.Runtime, pods, "c=exited")
			kit.Relist(1)
		}
		var silent [3]net.Conn
		for i := range silent {
			conn, err := f.dial(t.Context())
			kit.Must(t, err)
			defer conn.Close()
			silent[i] = conn
		}
		synctest.Wait()
		begin := time.Now()
		_ = f.stopServer()
		for _, conn := range silent { // before its handshake
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("a connection ended with %v", err)
			}
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v, want at most a second", took)
		}
	})
}

func TestNewRejectsBadOptions(t *testing.T) {
	pipe, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	kit.Must(t, err)
	for name, o := range map[string]server.Options{
		"MaxConnections": {MaxConnections: -1}, "MaxStreams": {MaxStreams: -1}, "MaxWatchers": {MaxWatchers: -1},
		"MaxCalls": {MaxCalls: -1},
	} {
		if _, err := server.New(pipe, o); !errors.Is(err, pleg.ErrInvalidOption) || err.Error() != "new server: Options."+name+" must be positive, got -1" {
			t.Errorf("New(%+v) = %v, want an error about the option %s", o, err, name)
		}
	}
	if _, err := server.New(nil, server.Options{}); err == nil || err.Error() != "new server: a pipeline is required" {
		t.Errorf("New without a pipeline: %v", err)
	}
}

func TestCloseWithoutServe(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p, err := pipeline.New(pipeline.Options{Runtime: plegtest.New()})
	kit.Must(t, err)
	defer p.Close()
	const taken = "new server: register metric pleg_server_refused_total: duplicate metrics collector registration attempted " +
		"(does another pipeline use this registerer? wrap it with prometheus.WrapRegistererWith)"
	var before *server.Server
	for range 2 { // the second can use the registerer
		s, err := server.New(p, server.Options{Registerer: registry})
		kit.Must(t, err)
		if before != nil {
			before.Close()
		}
		if families, err := registry.Gather(); err != nil || len(families) == 0 {
			t.Errorf("%d metrics, %v, want those of the server that is not closed", len(families), err)
		}
		if _, err := server.New(p, server.Options{Registerer: registry}); !errors.As(err, new(prometheus.AlreadyRegisteredError)) || err.Error() != taken {
			t.Errorf("a second server with the registerer: %v, want %s", err, taken)
		}
		s.Close()
		s.Close()
		before = s
	}
}
