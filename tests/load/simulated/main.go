// Command simulated soaks the program beside a simulated runtime; "make soak" runs it. See
// package load.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
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

func newNode(socket string, seed uint64) (*node, error) {
	profile, err := simruntime.NewProfile(simruntime.ProfileNode)
	if err != nil {
		return nil, err
	}
	runtime, err := simruntime.New(simruntime.Options{Seed: seed, Profile: profile})
	if err != nil {
		return nil, err
	}
	_, err = runtime.Populate(simruntime.Population{Pods: targetPods})
	return &node{runtime: runtime, socket: socket, rng: rand.New(rand.NewPCG(seed, 1)), faultRNG: rand.New(rand.NewPCG(seed, 2))}, err
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

// Endpoint implements [load.Node].
func (n *node) Endpoint() string { return "unix://" + n.socket }

// Churn implements [load.Node].
func (n *node) Churn(ctx context.Context, r *load.Run) error {
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

// Truth implements [load.Node].
func (n *node) Truth(context.Context) (promises.Truth, error) {
	return promises.SimulatedTruth(n.runtime.Pods()), nil
}

func main() { os.Exit(load.SoakMain("simulated", start)) }

func start(ctx context.Context, seed uint64) (load.Node, func(context.Context) error, error) {
	dir, err := os.MkdirTemp("", "pleg-soak-node-")
	if err != nil {
		return nil, nil, fmt.Errorf("simulated node: %w", err)
	}
	n, err := newNode(filepath.Join(dir, "cri.sock"), seed)
	if err == nil {
		err = n.serve(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("simulated node: %w", err), os.RemoveAll(dir))
	}
	return n, func(context.Context) error { return errors.Join(n.stop(), os.RemoveAll(dir)) }, nil
}
