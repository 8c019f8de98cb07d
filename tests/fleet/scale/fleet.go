package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/oracle"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/simnode"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

const cluster = "scale"

// virtualFleet is the server, the nodes and the watch that checks them.
type virtualFleet struct {
	*load.Run
	o      options
	dir    string
	server *natsd.Server
	conns  []*nats.Conn
	nodes  []*simnode.Node
	stops  []func()
	made   int // events of the load

	mu     sync.Mutex
	seen   *oracle.Consumer
	delays load.Times
	last   time.Time // of the watch's last event
	broken error
	stop   func()
}

func newFleet(ctx context.Context, r *load.Run, o options) (*virtualFleet, error) {
	dir, err := os.MkdirTemp("", "pleg-scale-")
	if err != nil {
		return nil, err
	}
	f := &virtualFleet{Run: r, o: o, dir: dir, seen: oracle.New(true), nodes: make([]*simnode.Node, o.nodes), stops: make([]func(), o.nodes)}
	if f.server, err = natsd.Run(ctx, dir); err != nil {
		return nil, err
	}
	for range o.connections + 1 { // the last one is the watch's
		conn, err := fleet.Connect(f.server.URL, fleet.ConnectOptions{})
		if err != nil {
			return nil, err
		}
		f.conns = append(f.conns, conn)
	}
	return f, nil
}

func (f *virtualFleet) close() {
	if f.stop != nil {
		f.stop()
	}
	for _, conn := range f.conns {
		conn.Close()
	}
	f.server.Kill()
	_ = os.RemoveAll(f.dir)
}

// name is that of the node i.
func name(i int) string { return fmt.Sprintf("node-%05d.example.com", i) }

// publish starts the publisher of the node i.
func (f *virtualFleet) publish(ctx context.Context, i int) error {
	p, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: f.conns[i%f.o.connections], Source: f.nodes[i], Cluster: cluster, Node: name(i),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx) // the end of ctx
	}()
	f.stops[i] = func() { cancel(); <-done }
	return nil
}

// fill starts the nodes and the watch, and waits until the watch has every pod.
func (f *virtualFleet) fill(ctx context.Context) error {
	began := time.Now()
	for i := range f.nodes {
		var err error
		f.nodes[i], err = simnode.New(simnode.Options{Name: name(i), Pods: f.o.pods, History: 8192, Seed: uint64(i), Discard: true})
		if err != nil {
			return err
		}
		for range f.o.pods * 3 / 2 {
			f.nodes[i].Step()
		}
		if err := f.publish(ctx, i); err != nil {
			return err
		}
	}
	js, err := jetstream.New(f.conns[f.o.connections])
	if err != nil {
		return err
	}
	ctx, f.stop = context.WithCancel(ctx)
	go f.watch(ctx, js)
	at, err := f.converged(ctx)
	if err != nil {
		return err
	}
	f.Row("start of all nodes until the watch has everything", "%.1f s", at.Sub(began).Seconds())
	return nil
}

func (f *virtualFleet) watch(ctx context.Context, js jetstream.JetStream) {
	for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: cluster, Replay: true, Filter: pleg.Filter{NetworkEvents: true}}) {
		f.mu.Lock()
		f.last = time.Now()
		if err == nil {
			f.seen.Add(ev)
		}
		if ev.PodUID != "" && !ev.Replayed {
			f.delays = append(f.delays, time.Since(ev.ObservedAt))
		}
		f.broken = errors.Join(f.broken, err)
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// convergeTimeout bounds how long the watch may take until it has everything.
const convergeTimeout = 5 * time.Minute

// converged waits until the watch has the union of the nodes' states, and returns when its
// last event came. The nodes rest meanwhile.
func (f *virtualFleet) converged(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, convergeTimeout)
	defer cancel()
	agreed := 0
	err := process.Await(ctx, func(context.Context) error {
		// Twice, because a node that agreed may have begun a replay since.
		for ; agreed < 2*len(f.nodes); agreed++ {
			if err := f.compare(agreed % len(f.nodes)); err != nil {
				if agreed >= len(f.nodes) {
					agreed -= len(f.nodes)
				}
				return err
			}
		}
		return nil
	})
	if err != nil {
		return time.Time{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.broken
}

// compare compares what the watch has of the node i, unless the watch is broken.
func (f *virtualFleet) compare(i int) error {
	truth := f.nodes[i].Truth()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.broken != nil:
		return nil
	case !f.seen.Synced:
		return errors.New("the watch is not synced")
	}
	err := f.seen.CompareNode(name(i), truth)
	if err == nil {
		f.seen.Forget(name(i), truth)
	}
	return err
}

// step makes events for a time at the rate of all nodes.
func (f *virtualFleet) step(ctx context.Context, duration time.Duration) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	budget, last, end := 0.0, time.Now(), time.Now().Add(duration)
	for now := range tick.C {
		budget += now.Sub(last).Seconds() * f.o.rate * float64(f.o.nodes)
		last = now
		for budget > 0 {
			n := f.nodes[rand.IntN(len(f.nodes))].Step()
			budget -= float64(n)
			f.made += n
		}
		if now.After(end) || ctx.Err() != nil {
			return
		}
	}
}

// takeDelays returns the delays since the last call.
func (f *virtualFleet) takeDelays() load.Times {
	f.mu.Lock()
	defer f.mu.Unlock()
	delays := f.delays
	f.delays = nil
	return delays
}

var errNoSynced = errors.New("the late watch ended before its Synced")

// late measures how long a consumer takes that comes when everything is there.
func (f *virtualFleet) late(ctx context.Context) error {
	js, err := jetstream.New(f.conns[f.o.connections])
	if err != nil {
		return err
	}
	began, pods := time.Now(), make(map[pleg.PodUID]struct{})
	options := fleet.WatchOptions{Cluster: cluster, Replay: true, Disconnected: func(err error, retryIn time.Duration) {
		f.Row("late consumer: began again", "in %v, after %.1f s: %v", retryIn, time.Since(began).Seconds(), err)
	}}
	for ev, err := range fleet.Watch(ctx, js, options) {
		if err != nil {
			return err
		}
		if ev.Type == pleg.Synced {
			f.Row("late consumer: all pods until Synced", "%d pods in %.1f s", len(pods), time.Since(began).Seconds())
			return nil
		}
		pods[ev.PodUID] = struct{}{}
	}
	return errNoSynced
}
