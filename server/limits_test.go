package server_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// list reads the list of pods on a new connection.
func (f *fixture) list() error {
	stream, err := f.client().ListPods(f.Context(), &plegv1.ListPodsRequest{})
	for err == nil {
		var m *plegv1.ListPodsResponse
		if m, err = stream.Recv(); err == nil && m.GetPod() == nil {
			return errors.New("a message without a pod for a client that knows no position")
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Calls that wait take all slots, and so do lists that are not read. Further ones are refused;
// watchers and the health service use slots of their own.
func TestTooManyCalls(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxCalls: 3}, func(t *testing.T, f *fixture) {
		other := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		f.setLargePods(10)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go func() {
				newer := timestamppb.New(time.Now().Add(time.Hour))
				_, _ = f.client().GetPodStatus(ctx, &plegv1.GetPodStatusRequest{PodUid: "p0", NewerThan: newer})
			}()
		}
		_, err := f.client().ListPods(ctx, &plegv1.ListPodsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		const says = "too many calls: this server allows 3 at a time"
		wantText(t, "a list", f.list(), codes.ResourceExhausted, says)
		_, err = f.client().GetStatus(t.Context(), &plegv1.GetStatusRequest{})
		wantText(t, "another method", err, codes.ResourceExhausted, says)
		if n := kit.Metric(t, f.Metrics, "pleg_server_refused_total", "call"); n != 2 {
			t.Errorf("%v refused calls in the metrics, want 2", n)
		}
		if _, err := healthv1.NewHealthClient(f.connect()).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("the health service: %v", err)
		}
		health, err := healthv1.NewHealthClient(f.connect()).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		kit.Must(t, err)
		if _, err := health.Recv(); err != nil {
			t.Errorf("a stream of the health service: %v", err)
		}
		for range 63 {
			stream, err := healthv1.NewHealthClient(f.connect()).Watch(t.Context(), &healthv1.HealthCheckRequest{})
			kit.Must(t, err)
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		_, err = healthv1.NewHealthClient(f.connect()).Check(t.Context(), &healthv1.HealthCheckRequest{})
		wantText(t, "one more call of the health service", err, codes.ResourceExhausted, "too many health calls: this server allows 64 at a time")
		reflection, err := grpc_reflection_v1.NewServerReflectionClient(f.connect()).ServerReflectionInfo(t.Context())
		kit.Must(t, err)
		_, err = reflection.Recv()
		wantText(t, "a description of the service", err, codes.ResourceExhausted, says)
		kit.RequireMetric(t, f.Metrics, 4, "pleg_server_refused_total", "call")
		f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		cancel()
		synctest.Wait()
		if err := f.list(); err != nil {
			t.Errorf("a list after the others have ended: %v", err)
		}
		for range 10 { // of the large pods
			if _, err := other.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		f.wantEvent("another client", other)
	})
}

// The number of watchers is bounded; a watcher that leaves makes room.
func TestTooManyWatchers(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxWatchers: 3, MaxStreams: 100}, func(t *testing.T, f *fixture) {
		c := f.client()
		ctx, cancel := context.WithCancel(t.Context())
		f.mustWatch(ctx, c, &plegv1.WatchRequest{})
		for range 2 {
			f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		}
		for range 50 {
			_, err := f.watch(t.Context(), c, &plegv1.WatchRequest{})
			wantText(t, "one more", err, codes.ResourceExhausted, "too many watchers: this server allows 3 at a time")
		}
		if n := kit.Metric(t, f.Metrics, "pleg_server_refused_total", "watcher"); n != 50 {
			t.Errorf("%v refusals in the metrics, want 50", n)
		}
		cancel()
		synctest.Wait()
		f.mustWatch(t.Context(), c, &plegv1.WatchRequest{})
		synctest.Wait() // the dispatcher counts a subscriber once its loop has seen it
		for _, name := range []string{"pleg_subscribers", "pleg_server_watchers"} {
			if n := kit.Metric(t, f.Metrics, name); n != 3 {
				t.Errorf("%s is %v, want 3", name, n)
			}
		}
	})
}

// A watcher that does not read costs nobody else an event: it is a position in the log, and learns
// how many events it missed.
func TestUnreadWatch(t *testing.T) {
	inBubble(t, pipeline.Options{History: 5}, server.Options{}, func(t *testing.T, f *fixture) {
		reads, unread := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{}), f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		const pods = 20
		got := make(chan int)
		go func() {
			n := 0
			for ; n < pods; n++ {
				if _, err := reads.Recv(); err != nil {
					break
				}
			}
			got <- n
		}()
		f.setLargePods(pods)
		if n := <-got; n != pods {
			t.Errorf("the client that reads got %d events, want %d", n, pods)
		}
		delivered, missed := uint64(0), uint64(0)
		for delivered+missed < pods {
			m, err := unread.Recv()
			kit.Must(t, err)
			if missed += m.GetEvent().GetMissed(); m.GetEvent().GetPodUid() != "" && !m.GetEvent().GetReplayed() {
				delivered++
			}
		}
		if delivered+missed != pods || missed == 0 {
			t.Errorf("the other one got %d events and missed %d, want %d together", delivered, missed, pods)
		}
	})
}

// A client that asks for lists of pods in a loop does not load the runtime more than other clients
// do.
func TestRelistsOfClientsAreBounded(t *testing.T) {
	runtime := plegtest.New()
	inBubble(t, pipeline.Options{Runtime: runtime, RelistPeriod: time.Hour}, server.Options{}, func(t *testing.T, f *fixture) {
		c := f.client()
		ask := func(r *plegv1.GetPodStatusRequest) error {
			_, err := c.GetPodStatus(t.Context(), r)
			return err
		}
		refused := 0
		lists := 0
		for n, step := range []struct {
			wait  time.Duration
			lists int
		}{{time.Second, 10}, {time.Second, 10}, {200 * time.Millisecond, 2}} {
			time.Sleep(step.wait)
			for range 50 {
				if err := ask(&plegv1.GetPodStatusRequest{PodUid: "a", Relist: true}); status.Code(err) == codes.ResourceExhausted {
					refused++
				}
			}
			lists += step.lists
			if got := runtime.Counts().PodLists; got != lists || refused != 50*(n+1)-lists {
				t.Errorf("%d lists and %d refused of 50 requests after %v, want %d more", got, refused, step.wait, step.lists)
			}
		}
		for _, reinspect := range []bool{false, true} {
			_, err := c.RequestRelist(t.Context(), &plegv1.RequestRelistRequest{PodUid: "a", Reinspect: reinspect})
			wantText(t, "a request", err, codes.ResourceExhausted, "too many lists of one pod: this server begins 10 a second")
		}
		if n := kit.Metric(t, f.Metrics, "pleg_server_refused_total", "call"); n != 130 {
			t.Errorf("%v refused calls in the metrics, want 130", n)
		}
		time.Sleep(time.Second)
		for _, reinspect := range []bool{false, true} { // the second is for the next list of all pods
			_, err := c.RequestRelist(t.Context(), &plegv1.RequestRelistRequest{PodUid: "a", Reinspect: reinspect})
			kit.Must(t, err)
			if synctest.Wait(); runtime.Counts().PodLists != lists+1 {
				t.Errorf("reinspect %t: %d lists of the pod, want %d", reinspect, runtime.Counts().PodLists, lists+1)
			}
		}
		wantText(t, "a second later", ask(&plegv1.GetPodStatusRequest{PodUid: "a", Relist: true}), codes.NotFound, pleg.ErrUnknownPod.Error())
		err := ask(&plegv1.GetPodStatusRequest{PodUid: "a", Relist: true, NewerThan: timestamppb.Now()})
		wantText(t, "two at once", err, codes.InvalidArgument, "relist and newer_than exclude each other")
	})
}

// hello is the beginning of an HTTP/2 connection: preface and empty SETTINGS.
const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// A client that does not answer pings loses its connection. An idle client that answers them keeps
// its connection, and its calls that wait.
func TestKeepalive(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{Keepalive: 20 * time.Second}, func(t *testing.T, f *fixture) {
		client := f.client()
		quiet := f.mustWatch(t.Context(), client, &plegv1.WatchRequest{})
		waited := make(chan error)
		go func() {
			_, err := client.GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "a", NewerThan: timestamppb.New(time.Now().Add(time.Hour))})
			waited <- err
		}()
		dead, err := f.dial(t.Context())
		kit.Must(t, err)
		defer dead.Close()
		if _, err := dead.Write([]byte(hello)); err != nil {
			t.Fatal(err)
		}
		kit.Relist(10)
		if n := kit.Metric(t, f.Metrics, "pleg_server_connections"); n != 2 {
			t.Errorf("after 10 s: %v connections, want 2", n)
		}
		kit.Relist(50)
		if n := kit.Metric(t, f.Metrics, "pleg_server_connections"); n != 1 {
			t.Errorf("after a minute: %v connections, want 1", n)
		}
		wantText(t, "an hour later", <-waited, codes.NotFound, pleg.ErrUnknownPod.Error())
		f.wantEvent("the idle client", quiet)
	})
}

// Without pings, a client that would not answer them keeps its connection.
func TestNoKeepalive(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{Keepalive: -1}, func(t *testing.T, f *fixture) {
		dead, err := f.dial(t.Context())
		kit.Must(t, err)
		defer dead.Close()
		_, err = dead.Write([]byte(hello))
		kit.Must(t, err)
		kit.Relist(300)
		kit.RequireMetric(t, f.Metrics, 1, "pleg_server_connections")
	})
}

// A client that sends nothing loses its connection after five seconds, or within a shorter Keepalive.
func TestSilentConnectionsAreClosed(t *testing.T) {
	for keepalive, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 2 * time.Second: 2 * time.Second} {
		inBubble(t, pipeline.Options{}, server.Options{Keepalive: keepalive}, func(t *testing.T, f *fixture) {
			began := time.Now()
			silent, err := f.dial(t.Context())
			kit.Must(t, err)
			defer silent.Close()
			_, err = io.Copy(io.Discard, silent)
			if took := time.Since(began); took != want {
				t.Errorf("Keepalive %v: closed after %v (%v), want %v", keepalive, took, err, want)
			}
		})
	}
}

// A connection without calls is closed after ten minutes, and not before, also if it answers pings and sends some
// itself: it counts for MaxConnections.
func TestIdleConnectionsAreClosed(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
		conn := kit.Connect(f, f.dial, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, PermitWithoutStream: true}))
		if _, err := plegv1.NewPLEGClient(conn).GetStatus(t.Context(), &plegv1.GetStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			minutes int
			open    float64
		}{{9, 1}, {2, 0}} {
			kit.Relist(60 * step.minutes)
			if n := kit.Metric(t, f.Metrics, "pleg_server_connections"); n != step.open {
				t.Errorf("%d minutes later: %v connections, want %v", step.minutes, n, step.open)
			}
		}
	})
}
