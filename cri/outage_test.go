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

// What happened while the runtime was away is known 350 ms after its return at
// the latest, with the default options: 120 ms to connect, 200 ms to the next
// list, and no time for the calls themselves. So a second leaves a busy node
// twice as long for them.
func TestCurrentSoonAfterTheReturnOfTheRuntime(t *testing.T) {
	const within = 350 * time.Millisecond
	for _, events := range []pipeline.EventsMode{pipeline.EventsOff, pipeline.EventsAuto} {
		for phase := 50 * time.Millisecond; phase < time.Second; phase += 150 * time.Millisecond {
			for _, outage := range []time.Duration{400 * time.Millisecond, 1730 * time.Millisecond, time.Minute} {
				t.Run(fmt.Sprintf("events=%s/%v after a list/away for %v", events, phase, outage), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						if took := returnOf(t, events, phase, outage); took > within {
							t.Errorf("current %v after the return, want %v at most", took, within)
						}
					})
				})
			}
		}
	}
}

// returnOf returns how long after its return a runtime's pods are known.
func returnOf(t *testing.T, events pipeline.EventsMode, phase, outage time.Duration) time.Duration {
	t.Helper()
	rt, err := simruntime.New(simruntime.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[bufconn.Listener]
	start := func() (stop func()) {
		listener := bufconn.Listen(1 << 20)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = rt.Serve(ctx, listener) // ends with stop
		}()
		current.Store(listener)
		return func() {
			current.Store(nil)
			cancel()
			<-done
		}
	}
	client := newClient(t, "/in-memory", cri.Options{DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if listener := current.Load(); listener != nil {
				return listener.DialContext(ctx)
			}
			return nil, errors.New("connection refused")
		}),
	}})
	p, err := pipeline.New(pipeline.Options{Runtime: client, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop := start()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	time.Sleep(10*time.Second + phase)
	stop()
	if _, err := rt.Populate(simruntime.Population{Pods: 1, Containers: 1}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(outage)
	defer start()()
	back := time.Now()
	select {
	case <-sub.Events():
	case <-time.After(time.Hour):
		t.Fatal("nothing was heard of the pod within an hour")
	}
	return time.Since(back)
}
