package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

const (
	// targetPods is the approximate number of pods.
	targetPods = 60
	// rate is the number of changes per second.
	rate = 12
)

// node is a simulated runtime that changes its pods and breaks now and then.
type node struct {
	runtime  *simruntime.Runtime
	socket   string
	rng      *rand.Rand // of the changes
	faultRNG *rand.Rand

	end    context.CancelFunc // ends the server
	served chan error         // what Serve returned
}

// startNode starts a node that serves until stop.
func startNode(ctx context.Context, socket string, seed uint64) (*node, error) {
	runtime, err := simruntime.New(simruntime.Options{Seed: seed, Profile: simruntime.NodeProfile()})
	if err != nil {
		return nil, err
	}
	if _, err := runtime.Populate(simruntime.Population{Pods: targetPods}); err != nil {
		return nil, err
	}
	n := &node{runtime: runtime, socket: socket, rng: rand.New(rand.NewPCG(seed, 1)), faultRNG: rand.New(rand.NewPCG(seed, 2))}
	return n, n.serve(ctx)
}

// serve serves on a new socket until stop.
func (n *node) serve(ctx context.Context) error {
	l, err := unixsocket.Listen(ctx, n.socket)
	if err != nil {
		return err
	}
	// It ends with stop, at the end of the soak or in a fault.
	ctx, n.end = context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	n.served = served
	go func() { served <- n.runtime.Serve(ctx, l) }()
	return nil
}

func (n *node) stop() error {
	n.end()
	if err := <-n.served; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// churn changes pods, and breaks the runtime now and then, until ctx ends. It returns nil once
// no change is under way and the runtime works.
func (n *node) churn(ctx context.Context, r *load.Run) error {
	var parts errgroup.Group
	seed := n.rng.Uint64()
	parts.Go(func() error {
		err := n.runtime.Churn(ctx, simruntime.ChurnOptions{
			Seed: seed, Rate: rate, Pods: targetPods, Observe: func(string) { r.Did("pod is changed") },
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	parts.Go(func() error {
		for load.Sleep(ctx, n.between(minPause, maxPause)) {
			if err := r.Break(ctx, n.randomFault()); err != nil {
				return err
			}
		}
		return nil
	})
	return parts.Wait()
}
