package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// With the default options, events of changes during an outage arrive at most 350 ms
// after the runtime's return: 120 ms to connect, 200 ms to the next list, and no time
// for the calls themselves. If the runtime returns before the next list is due, that
// list shows the changes.
func TestEventsSoonAfterRuntimeReturns(t *testing.T) {
	t.Parallel()
	for _, events := range []pipeline.EventsMode{pipeline.EventsOff, pipeline.EventsAuto} {
		for _, phase := range []time.Duration{50 * time.Millisecond, 420 * time.Millisecond, 950 * time.Millisecond} {
			for _, outage := range []time.Duration{400 * time.Millisecond, 1730 * time.Millisecond, 20 * time.Second} {
				t.Run(fmt.Sprintf("events=%s/%v after a list/away for %v", events, phase, outage), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						within := max(350*time.Millisecond, pipeline.DefaultRelistPeriod-phase-outage)
						if took := returnOf(t, events, phase, outage); took > within {
							t.Errorf("current %v after the return, want %v at most", took, within)
						}
					})
				})
			}
		}
	}
}

// outlet serves a runtime that can be stopped and started.
type outlet struct {
	rt      *simruntime.Runtime
	current atomic.Pointer[bufconn.Listener]
}

func (o *outlet) dial(ctx context.Context, _ string) (net.Conn, error) {
	if listener := o.current.Load(); listener != nil {
		return listener.DialContext(ctx)
	}
	return nil, errors.New("connection refused")
}

func (o *outlet) open() (stop func()) {
	listener := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = o.rt.Serve(ctx, listener) // ends with stop
	}()
	o.current.Store(listener)
	return func() {
		o.current.Store(nil)
		cancel()
		<-done
	}
}

// returnOf returns the time from a runtime's return to the first event. The outage
// begins at phase after a list.
func returnOf(t *testing.T, events pipeline.EventsMode, phase, outage time.Duration) time.Duration {
	t.Helper()
	rt, err := simruntime.New(simruntime.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	runtime := &outlet{rt: rt}
	client := newClient(t, "/in-memory", cri.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(runtime.dial)}})
	stop := runtime.open()
	_, sub := runPipeline(t, pipeline.Options{Runtime: client, Events: events})
	time.Sleep(10*time.Second + phase)
	stop()
	if _, err := rt.Populate(simruntime.Population{Pods: 1, Containers: 1}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(outage)
	t.Cleanup(runtime.open())
	back := time.Now()
	select {
	case <-sub.Events():
	case <-time.After(time.Hour):
		t.Fatal("no event of the pod within an hour")
	}
	return time.Since(back)
}

// runPipeline runs a pipeline until the test ends.
func runPipeline(t *testing.T, o pipeline.Options) (*pipeline.Pipeline, *pipeline.Subscription) {
	t.Helper()
	p, err := pipeline.New(o)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return p, sub
}
