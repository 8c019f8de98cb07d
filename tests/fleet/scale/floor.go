package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// floor measures what bare nats.go does in the place of the publishers, on the same server
// and connections: the states of all pods, and a burst of events. It checks nothing.
func (f *virtualFleet) floor(ctx context.Context) error {
	began, events := time.Now(), 0
	for _, n := range f.nodes {
		for range 10 {
			events += n.Step()
		}
	}
	at, err := f.converged(ctx)
	if err != nil {
		return err
	}
	f.Row("burst: events a second until the watch has everything", "%.0f", float64(events)/at.Sub(began).Seconds())
	js, err := jetstream.New(f.conns[f.o.connections])
	if err != nil {
		return err
	}
	stream := jetstream.StreamConfig{Name: "floor", Subjects: []string{"floor.>"}, MaxMsgsPerSubject: 1}
	if _, err := js.CreateStream(ctx, stream); err != nil {
		return err
	}
	const eventBytes, stateBytes = 700, 900
	took, err := f.publishBare(ctx, events/len(f.nodes)+1, eventBytes)
	if err != nil {
		return err
	}
	f.Row("floor: bare nats.go publishes as many messages of 700 bytes", "%.0f a second", float64(events)/took.Seconds())
	if took, err = f.publishBare(ctx, f.o.pods, stateBytes); err != nil {
		return err
	}
	f.Row("floor: bare nats.go writes a value of 900 bytes for each pod", "%.1f s", took.Seconds())
	return nil
}

// publishBare publishes n messages for each node and waits for all acknowledgements.
func (f *virtualFleet) publishBare(ctx context.Context, n, size int) (time.Duration, error) {
	began, body := time.Now(), make([]byte, size)
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
	err := group.Wait()
	return time.Since(began), err
}
