package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

// floor measures a burst of events, and what bare nats.go does with as many messages on the same
// server and connections. The events are only counted until the watch has all: to compare the
// states takes more CPU than to publish.
func (f *virtualFleet) floor(ctx context.Context) error {
	before := f.count()
	began, events := time.Now(), 0
	for _, n := range f.nodes {
		for range 10 {
			events += n.Step()
		}
	}
	err := process.Await(ctx, func(context.Context) error {
		if got := f.count() - before; got < events {
			return fmt.Errorf("the watch has %d of %d events", got, events)
		}
		return nil
	})
	if err != nil {
		return err
	}
	at, err := f.converged(ctx)
	if err != nil {
		return err
	}
	f.Row("burst: events a second until the watch has everything", "%.0f", float64(events)/at.Sub(began).Seconds())
	took, err := f.publishBare(ctx, events/len(f.nodes)+1)
	if err != nil {
		return err
	}
	f.Row("floor: bare nats.go publishes as many messages of 700 bytes", "%.0f a second", float64(events)/took.Seconds())
	return nil
}

// count returns how many new events the watch has.
func (f *virtualFleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen.Events
}

// publishBare publishes n messages for each node and waits for all acknowledgements. It checks
// nothing.
func (f *virtualFleet) publishBare(ctx context.Context, n int) (time.Duration, error) {
	all, err := jetstream.New(f.conns[f.o.connections])
	if err != nil {
		return 0, err
	}
	stream := jetstream.StreamConfig{Name: "floor", Subjects: []string{"floor.>"}, MaxMsgsPerSubject: 1}
	if _, err := all.CreateStream(ctx, stream); err != nil {
		return 0, err
	}
	began, body := time.Now(), make([]byte, 700)
	group, ctx := errgroup.WithContext(ctx)
	for i := range f.nodes {
		js, err := jetstream.New(f.conns[i%f.o.connections])
		if err != nil {
			return 0, err
		}
		group.Go(func() error {
			for j := range n {
				if _, err := js.PublishAsync(fmt.Sprintf("floor.%d.%d", i, j), body); err != nil {
					return err
				}
			}
			select {
			case <-js.PublishAsyncComplete():
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	err = group.Wait()
	return time.Since(began), err
}
