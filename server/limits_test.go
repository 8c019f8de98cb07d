package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// open begins calls of a method and sends no request.
func (f *fixture) open(conn *grpc.ClientConn, method string, n int) {
	f.Helper()
	for range n {
		if _, err := conn.NewStream(f.Context(), &grpc.StreamDesc{ServerStreams: true}, method); err != nil {
			f.Fatal(err)
		}
	}
	synctest.Wait()
}

// list reads the list of pods on a new connection.
func (f *fixture) list() error {
	stream, err := f.client().ListPods(f.Context(), &plegv1.ListPodsRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// limited are methods with four places, or five that another client's watch shares.
var limited = map[string]struct {
	options server.Options
	unread  unread
	call    func(*fixture) error
	says    string
}{
	"ListPods": {
		server.Options{MaxLists: 4},
		unread{plegv1.PLEG_ListPods_FullMethodName, &plegv1.ListPodsRequest{}},
		(*fixture).list, "too many calls of /pleg.v1.PLEG/ListPods: this server allows 4 at a time",
	},
	"GetPodStatus": {
		server.Options{MaxStatusCalls: 4},
		unread{plegv1.PLEG_GetPodStatus_FullMethodName, &plegv1.GetPodStatusRequest{PodUid: "a"}},
		func(f *fixture) error {
			_, err := f.client().GetPodStatus(f.Context(), &plegv1.GetPodStatusRequest{PodUid: "a"})
			if status.Code(err) == codes.NotFound {
				return nil // it was answered: there is no such pod
			}
			return err
		}, "too many calls of /pleg.v1.PLEG/GetPodStatus: this server allows 4 at a time",
	},
	"GetStatus": {
		server.Options{MaxStatusCalls: 4},
		unread{plegv1.PLEG_GetStatus_FullMethodName, &plegv1.GetStatusRequest{}},
		func(f *fixture) error {
			_, err := f.client().GetStatus(f.Context(), &plegv1.GetStatusRequest{})
			return err
		}, "too many calls of /pleg.v1.PLEG/GetStatus: this server allows 4 at a time",
	},
	"Check": {
		server.Options{MaxCalls: 5, MaxWatchers: 5},
		unread{healthv1.Health_Check_FullMethodName, &healthv1.HealthCheckRequest{}},
		func(f *fixture) error {
			_, err := healthv1.NewHealthClient(f.connect()).Check(f.Context(), &healthv1.HealthCheckRequest{})
			return err
		}, "too many calls: this server allows 5 at a time",
	},
	"reflection": {
		server.Options{MaxCalls: 5, MaxWatchers: 5},
		unread{
			reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName,
			&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}},
		},
		(*fixture).list, "too many calls: this server allows 5 at a time",
	},
	"Watch": {
		server.Options{MaxCalls: 5, MaxWatchers: 5},
		unread{method: plegv1.PLEG_Watch_FullMethodName},
		(*fixture).list, "too many calls: this server allows 5 at a time",
	},
}

// Each method has a limit on all connections together. Clients that do not send their
// request lose their connection; the others do not notice.
func TestTooManyCalls(t *testing.T) {
	for name, tt := range limited {
		t.Run(name, func(t *testing.T) {
			inBubble(t, pipeline.Options{}, tt.options, func(t *testing.T, f *fixture) {
				other := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
				f.open(f.connect(), tt.unread.method, 2)
				f.open(f.connect(), tt.unread.method, 2)
				wantStatus(t, "one more", tt.call(f), codes.ResourceExhausted, tt.says)
				time.Sleep(server.AnswerTimeout + time.Millisecond)
				synctest.Wait()
				if err := tt.call(f); err != nil {
					t.Errorf("after %v: %v", server.AnswerTimeout, err)
				}
				f.wantEvent("another client", other)
			})
		})
	}
}

// A call counts until its answer has been written. A client that does not read answers loses
// its connection.
func TestUnreadAnswers(t *testing.T) {
	for name, tt := range limited {
		if tt.unread.request == nil {
			continue // its answer has no end
		}
		t.Run(name, func(t *testing.T) {
			tt.options.Keepalive = time.Hour // the client answers no pings
			inBubble(t, pipeline.Options{}, tt.options, func(t *testing.T, f *fixture) {
				other := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
				f.Runtime.Set("a", "c=running")
				if _, err := other.Recv(); err != nil {
					t.Fatal(err)
				}
				first, second := f.leave(tt.unread, tt.unread), f.leave(tt.unread, tt.unread)
				wantStatus(t, "one more", tt.call(f), codes.ResourceExhausted, tt.says)
				time.Sleep(server.AnswerTimeout + time.Millisecond)
				synctest.Wait()
				for i, ended := range []<-chan struct{}{first, second} {
					select {
					case <-ended:
					default:
						t.Errorf("connection %d is open after %v", i, server.AnswerTimeout)
					}
				}
				if err := tt.call(f); err != nil {
					t.Errorf("after %v: %v", server.AnswerTimeout, err)
				}
				f.wantEvent("another client", other)
			})
		})
	}
}

// A client that does not read the list of pods loses its connection.
func TestUnreadList(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxLists: 1, MaxCalls: 3}, func(t *testing.T, f *fixture) {
		f.setLargePods(10)
		stream, err := f.client().ListPods(t.Context(), &plegv1.ListPodsRequest{})
		kit.Must(t, err)
		time.Sleep(time.Second)
		for range 5 {
			wantStatus(t, "another list", f.list(), codes.ResourceExhausted, "allows 1 at a time")
		}
		if _, err := f.client().GetStatus(t.Context(), &plegv1.GetStatusRequest{}); err != nil {
			t.Errorf("another method after refused lists: %v", err)
		}
		time.Sleep(server.AnswerTimeout)
		if err := f.list(); err != nil {
			t.Errorf("another list: %v", err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, "the unread list", err, codes.Unavailable, "")
	})
}

// Calls that wait by their nature keep their connection.
func TestWaitingCallsAreNotCut(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{}, func(t *testing.T, f *fixture) {
		conn := f.connect()
		watch := f.mustWatch(t.Context(), plegv1.NewPLEGClient(conn), &plegv1.WatchRequest{})
		if _, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			newer := timestamppb.New(time.Now().Add(time.Hour))
			_, err := plegv1.NewPLEGClient(conn).GetPodStatus(t.Context(), &plegv1.GetPodStatusRequest{PodUid: "a", NewerThan: newer})
			got <- err
		}()
		wantStatus(t, "an hour later", <-got, codes.NotFound, pleg.ErrUnknownPod.Error())
		f.wantEvent("the watcher", watch)
	})
}

// A client that makes refused calls without end loses its connection: gRPC keeps something of
// each of them until then.
func TestRefusedCallsAreLimited(t *testing.T) {
	inBubble(t, pipeline.Options{}, server.Options{MaxCalls: 1, MaxWatchers: 1}, func(t *testing.T, f *fixture) {
		watch := f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
		refused := unread{method: plegv1.PLEG_GetStatus_FullMethodName, request: &plegv1.GetStatusRequest{}}
		select {
		case <-f.leave(slices.Repeat([]unread{refused}, 100)...):
			t.Error("100 refused calls ended the connection")
		default:
		}
		select {
		case <-f.leave(slices.Repeat([]unread{refused}, 300)...):
		default:
			t.Error("the connection is open after 300 refused calls")
		}
		f.wantEvent("another client", watch)
	})
}

// gRPC frees what it keeps of a refused call with the connection, even if the deadline is far.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	pipes := bufconn.Listen(64 << 10)
	l := &countingListener{Listener: pipes}
	f := newFixtureOn(t, pipeline.Options{}, server.Options{MaxCalls: 1, MaxWatchers: 1}, l)
	f.dial = func(ctx context.Context, _ string) (net.Conn, error) { return pipes.DialContext(ctx) }
	f.mustWatch(t.Context(), f.client(), &plegv1.WatchRequest{})
	conn := f.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
	defer cancel()
	_, err := plegv1.NewPLEGClient(conn).GetStatus(ctx, &plegv1.GetStatusRequest{})
	wantStatus(t, "a second call", err, codes.ResourceExhausted, "")
	conn.Close()
	// A processor keeps stopped timers, such as that of the deadline, while they are less than a
	// quarter of its timers.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 1000 {
		for range 100 {
			time.AfterFunc(time.Hour, func() {}).Stop()
		}
		runtime.GC()
		if l.freed.Load() == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the server still refers to the connection")
}

// countingListener counts the connections that nothing refers to any more.
type countingListener struct {
	net.Listener
	freed atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &struct{ net.Conn }{conn}
	runtime.AddCleanup(counted, func(freed *atomic.Int64) { freed.Add(1) }, &l.freed)
	return counted, nil
}
