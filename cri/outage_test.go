package cri_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// With the default options, events of changes during an outage arrive at most a relist
// period after the runtime's return, and the 120 ms that it may take to connect. If the
// event stream is open again sooner, that list shows them.
func TestEventsSoonAfterRuntimeReturns(t *testing.T) {
	t.Parallel()
	for _, events := range []pipeline.EventsMode{pipeline.EventsOff, pipeline.EventsAuto} {
		for _, outage := range []time.Duration{400 * time.Millisecond, 1730 * time.Millisecond, 20 * time.Second} {
			kit.Bubble(t, fmt.Sprintf("events=%s/away for %v", events, outage), func(t *testing.T) {
				if took := returnOf(t, events, outage); took > pipeline.DefaultRelistPeriod+120*time.Millisecond {
					t.Errorf("current %v after the return", took)
				}
			})
		}
	}
}

// returnOf returns the time from a runtime's return to the first event.
func returnOf(t *testing.T, events pipeline.EventsMode, outage time.Duration) time.Duration {
	t.Helper()
	rt := simruntime.New(simruntime.Options{Seed: 7})
	s := kit.Simulate(t, rt, pipeline.Options{Events: events}, cri.Options{})
	received := s.Events(t, 0)
	time.Sleep(10*time.Second + 420*time.Millisecond)
	s.StopServing()
	s.Populate(simruntime.Population{Pods: 1, Containers: 1})
	time.Sleep(outage)
	s.Serve()
	back := time.Now()
	select {
	case <-received:
	case <-time.After(time.Hour):
		t.Fatal("no event of the pod within an hour")
	}
	return time.Since(back)
}

// A runtime whose socket was removed still answers on open connections, but accepts no new ones. A
// socket that replaces it is found. Interceptors, such as a recorder's, change nothing.
func TestRemovedSocketIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	stop := rawruntime.Serve(t, &rawruntime.Runtime{}, listen(t, path))
	client := newClient(t, "unix://"+path, cri.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor()}})
	wantPods(t, client, 0)
	must(t, client.Report().Degraded)
	must(t, os.Remove(path))
	var listed, degraded error
	for range 1000 { // a call may end before gRPC says that its connection is ready
		if wantPods(t, client, 0); client.Report().Degraded != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := client.Report().Degraded; err == nil || err.Error() != "the socket "+path+" is gone: the runtime answers only on connections that are open" {
		t.Errorf("without a socket: %v, want that it is gone", err)
	}
	stop()
	for range 1000 { // until the client has seen the end of its connection
		_, listed = client.ListPods(t.Context())
		if degraded = client.Report().Degraded; listed != nil && degraded == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if listed == nil || degraded != nil {
		t.Errorf("without a connection: %v, %v, want an error, and nothing about connections that are open", listed, degraded)
	}
	rawruntime.Serve(t, &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}}, listen(t, path))
	for range 1000 { // until the client has seen the end of its connection, and made another
		if _, err := client.ListPods(t.Context()); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	wantPods(t, client, 1)
}

// A list waits for a silent runtime for another ListTimeout at most.
func TestSilentRuntimeIsNotAwaitedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &kit.Memory{}
		accept(t, m.Listen(), func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := clientOf(t, m, cri.Options{ConnectTimeout: time.Second, ListTimeout: 7 * time.Second}).ListPods(ctx)
		if took := time.Since(began); err == nil || !strings.HasPrefix(err.Error(), "list ") || !strings.Contains(err.Error(), "s: it accepts connections but does not answer: ") || took < 8*time.Second || took > 9*time.Second {
			t.Errorf("%v after %v, want why, after ConnectTimeout and one more ListTimeout", err, took)
		}
	})
}

// The stream counts as opened once the runtime has answered.
func TestUnresponsiveRuntimeOpensNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		rt.Inject(simruntime.Fault{RPC: "Version", Hang: true})
		w := watchEvents(t, client)
		time.Sleep(time.Minute)
		select {
		case <-w.opened:
			t.Error("opened before an answer")
		default:
		}
		rt.ClearAll()
		<-w.opened
		must(t, client.Probe(t.Context()))
		rt.Inject(simruntime.Fault{RPC: "Version", Code: codes.Unavailable})
		refused := watchEvents(t, client)
		select {
		case <-refused.opened:
			t.Error("opened although the runtime refused the other call")
		case err := <-refused.ended:
			if status.Code(err) != codes.Unavailable || err.Error() != "watch container events: rpc error: code = Unavailable desc = injected fault" {
				t.Errorf("the stream of a runtime that refuses the other call ended with %v", err)
			}
		}
		if err := client.Probe(t.Context()); !errors.Is(err, pleg.ErrUnavailable) || err.Error() != "probe the runtime: the runtime is not available: rpc error: code = Unavailable desc = injected fault" {
			t.Errorf("Probe = %v, want that the runtime is not available", err)
		}
	})
}

// TestSilentRuntimeHangs uses a runtime that is stopped by a signal before the first connection: its
// kernel accepts it, and nothing answers. It counts as gone only once its process is gone: then a
// list does not wait any longer.
func TestSilentRuntimeHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	kit.Must(t, err)
	c, err := cri.New(socket, cri.Options{ConnectTimeout: 250 * time.Millisecond, ListTimeout: time.Hour})
	kit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	reported := make(chan bool, 1)
	go func() {
		connects := func(call pleg.Call) bool { return call.Method == "connect" }
		for ctx.Err() == nil && !slices.ContainsFunc(c.Report().Calls, connects) {
			time.Sleep(time.Millisecond)
		}
		reported <- ctx.Err() == nil
	}()
	began := time.Now()
	if _, err := c.ListPods(ctx); err == nil || errors.Is(err, pleg.ErrUnavailable) || ctx.Err() == nil {
		t.Errorf("after %v: %v, want an error of a runtime that hangs, once the context has ended", time.Since(began), err)
	}
	if !<-reported {
		t.Error("no report has the call that waits for the connection")
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := time.AfterFunc(500*time.Millisecond, func() { _ = listener.Close() })
	defer end.Stop()
	for !errors.Is(err, pleg.ErrUnavailable) { // grpc may return the last error once more
		if _, err = c.ListPods(ctx); ctx.Err() != nil {
			t.Fatalf("without a listener: %v", err)
		}
	}
}
