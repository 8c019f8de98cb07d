package server_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodetest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

func wantStatus(t *testing.T, what string, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
		t.Errorf("%s: got %v, want %v and %q", what, err, code, says)
	}
}

// A bad request is an error for who sent it, that names what is bad.
func TestBadRequests(t *testing.T) {
	const unspecified, started, synced = plegv1.EventType_EVENT_TYPE_UNSPECIFIED, plegv1.EventType_EVENT_TYPE_CONTAINER_STARTED, plegv1.EventType_EVENT_TYPE_SYNCED
	tests := []struct {
		name    string
		request *plegv1.WatchRequest
		code    codes.Code
		says    string
	}{
		{"selector", &plegv1.WatchRequest{LabelSelector: "a in"}, codes.InvalidArgument, `"a in" is not a label selector`},
		{"no type", &plegv1.WatchRequest{Types: []plegv1.EventType{started, unspecified}}, codes.InvalidArgument, "unspecified type"},
		{"unknown type", &plegv1.WatchRequest{Types: []plegv1.EventType{77}}, codes.InvalidArgument, `unknown event type "77"`},
		{"mark", &plegv1.WatchRequest{Types: []plegv1.EventType{synced}}, codes.InvalidArgument, `unknown event type "Synced"`},
		{"both", &plegv1.WatchRequest{Replay: true, ResumeAfter: &plegv1.Position{Seq: 1}}, codes.InvalidArgument, "replay and resume_after exclude each other"},
		{"name", &plegv1.WatchRequest{Name: strings.Repeat("n", 101)}, codes.InvalidArgument, "name has 101 bytes"},
		{"buffer", &plegv1.WatchRequest{Buffer: 4097}, codes.InvalidArgument, "buffer is 4097, the limit is 4096"},
		{"size", &plegv1.WatchRequest{Namespaces: slices.Repeat([]string{strings.Repeat("n", 1000)}, 100)}, codes.ResourceExhausted, "larger than max"},
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, pipeline.Options{}, server.Options{})
		c := b.client()
		other := b.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		for _, tt := range tests {
			_, err := b.watch(t.Context(), c, tt.request)
			wantStatus(t, tt.name, err, tt.code, tt.says)
		}
		_, err := c.GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "a", NewerThan: &timestamppb.Timestamp{Nanos: -1}})
		wantStatus(t, "bad time", err, codes.InvalidArgument, "newer_than")
		b.node.Set("a", "c=running")
		if m, err := other.Recv(); err != nil || m.GetEvent().GetContainerId() != "c" {
			t.Errorf("another watch of the same connection got %v, %v", m, err)
		}
	})
}

// The number of watchers is bounded; one that leaves makes room.
func TestTooManyWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		b := newBed(t, pipeline.Options{Registerer: registry}, server.Options{MaxWatchers: 3, MaxStreams: 100, Registerer: registry})
		c := b.client()
		ctx, cancel := context.WithCancel(t.Context())
		b.mustWatch(ctx, c, &plegv1.WatchRequest{})
		for range 2 {
			b.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		}
		for range 50 {
			_, err := b.watch(t.Context(), c, &plegv1.WatchRequest{})
			wantStatus(t, "one more", err, codes.ResourceExhausted, "too many watchers: this server takes 3 at a time")
		}
		if n := value(t, registry, "pleg_server_refused_total"); n != 50 {
			t.Errorf("%v refusals in the metrics, want 50", n)
		}
		cancel()
		synctest.Wait()
		b.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		if n := value(t, registry, "pleg_subscribers"); n != 3 {
			t.Errorf("%v subscribers, want 3", n)
		}
	})
}

// value returns the sum of a metric's series.
func value(t *testing.T, from prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// A connection too many is told so, and costs the others nothing.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		b := newBed(t, pipeline.Options{}, server.Options{MaxConnections: 2, Registerer: registry})
		streams := b.mustWatch(t.Context(), b.client(), &plegv1.WatchRequest{})
		second := b.connect()
		b.mustWatch(t.Context(), plegv1.NewPLEGClient(second), &plegv1.WatchRequest{})
		for range 10 {
			_, err := b.watch(t.Context(), b.client(), &plegv1.WatchRequest{})
			wantStatus(t, "one more", err, codes.ResourceExhausted, "too many connections: this server takes 2 at a time")
		}
		if n := value(t, registry, "pleg_server_connections"); n != 2 {
			t.Errorf("%v connections in the metrics, want 2", n)
		}
		second.Close()
		synctest.Wait()
		b.mustWatch(t.Context(), b.client(), &plegv1.WatchRequest{})
		b.node.Set("a", "c=running")
		if m, err := streams.Recv(); err != nil || m.GetEvent().GetContainerId() != "c" {
			t.Errorf("who was in got %v, %v", m, err)
		}
	})
}

// The health service says what the pipeline says, and NOT_SERVING in the end.
func TestHealth(t *testing.T) {
	const well, ill = healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, pipeline.Options{RelistThreshold: time.Minute}, server.Options{})
		c := healthv1.NewHealthClient(b.connect())
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
		b.relist(2)
		check("after a list", well)
		b.node.Silence(errors.New("the runtime is down"))
		b.relist(30)
		check("within the threshold", well)
		b.relist(60)
		check("after the threshold", ill)
		b.node.Silence(nil)
		b.relist(90)
		check("after another list", well)

		stream, err := c.Watch(ctx, &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []healthv1.HealthCheckResponse_ServingStatus
		r, err := stream.Recv()
		go func() { _ = b.end() }()
		for ; err == nil; r, err = stream.Recv() {
			got = append(got, r.GetStatus())
		}
		wantStatus(t, "the end", err, codes.Unavailable, "shutting down")
		if got[0] != well {
			t.Errorf("watched %v, want %v first", got, well)
		}
	})
}

func TestReflection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, pipeline.Options{}, server.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := reflectionv1.NewServerReflectionClient(b.connect()).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
		}); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range r.GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		for _, want := range []string{"pleg.v1.PLEG", "grpc.health.v1.Health"} {
			if !slices.Contains(names, want) {
				t.Errorf("services %v, want %s among them", names, want)
			}
		}
	})
}

// Every stream ends with UNAVAILABLE when the server does, at once for clients
// that read and within the grace for those that do not.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, pipeline.Options{Inspectors: 100}, server.Options{Grace: 3 * time.Second})
		reading := b.mustWatch(t.Context(), b.client(), &plegv1.WatchRequest{Replay: true})
		asleep := b.mustWatch(t.Context(), b.client(), &plegv1.WatchRequest{})
		if m, err := reading.Recv(); err != nil || m.GetEvent().GetType() != plegv1.EventType_EVENT_TYPE_SYNCED {
			t.Fatalf("got %v, %v, want SYNCED", m, err)
		}
		begin := time.Now()
		if err := b.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("Serve = %v, want %v", err, context.Canceled)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v, want no time", took)
		}
		for _, stream := range []interface {
			Recv() (*plegv1.WatchResponse, error)
		}{reading, asleep} {
			_, err := stream.Recv()
			wantStatus(t, "the stream", err, codes.Unavailable, "shutting down")
		}
	})
}

func TestShutdownIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, grace = 500, 3 * time.Second
		b := newBed(t, pipeline.Options{Inspectors: pods}, server.Options{Grace: grace})
		b.mustWatch(t.Context(), b.client(), &plegv1.WatchRequest{Replay: true}) // and never reads
		for range 4 {
			b.node.Fill(pods, "c=running")
			b.relist(1)
			b.node.Fill(pods, "c=exited")
			b.relist(1)
		}
		silent, err := b.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		synctest.Wait()
		begin := time.Now()
		_ = b.end()
		if took := time.Since(begin); took > grace {
			t.Errorf("it took %v, want no more than %v", took, grace)
		}
	})
}

// When the pipeline ends first, its watchers get what was published.
func TestPipelineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, pipeline.Options{}, server.Options{})
		c := b.client()
		stream := b.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		b.node.Set("a", "c1=running c2=running")
		b.relist(1)
		b.endPipe()
		var got []string
		m, err := stream.Recv()
		for ; err == nil; m, err = stream.Recv() {
			got = append(got, m.GetEvent().GetContainerId())
		}
		wantStatus(t, "the stream", err, codes.Unavailable, pipeline.ErrStopped.Error())
		if strings.Join(got, " ") != "c1 c2" {
			t.Errorf("got %v, want c1 and c2", got)
		}
		_, err = b.watch(t.Context(), c, &plegv1.WatchRequest{})
		wantStatus(t, "a new watch", err, codes.Unavailable, pipeline.ErrStopped.Error())
		pods, err := c.ListPods(t.Context(), &plegv1.ListPodsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := pods.Recv(); err != nil || m.GetPod().GetUid() != "a" {
			t.Errorf("ListPods: %v, %v, want what was known last", m, err)
		}
		if _, err := pods.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("ListPods ended with %v, want %v", err, io.EOF)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	pipe, err := pipeline.New(pipeline.Options{Runtime: nodetest.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]server.Options{
		"MaxConnections": {MaxConnections: -1}, "MaxStreams": {MaxStreams: -1}, "MaxWatchers": {MaxWatchers: -1},
		"MaxRequestBytes": {MaxRequestBytes: -1}, "Options.Buffer": {Buffer: -1}, "MaxBuffer": {MaxBuffer: -1},
		"Keepalive": {Keepalive: -1}, "Grace": {Grace: -1}, "must not exceed": {Buffer: 10, MaxBuffer: 5},
	} {
		if _, err := server.New(pipe, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New(%+v) = %v, want an error with %q", o, err, name)
		}
	}
	if _, err := server.New(nil, server.Options{}); err == nil {
		t.Error("New without a pipeline: no error")
	}
	if _, err := server.New(pipe, server.Options{MaxBuffer: 10}); err != nil {
		t.Errorf("New with a maximum below the default: %v", err)
	}
}
