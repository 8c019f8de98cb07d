// Command simulated soaks the program beside a simulated runtime; "make soak" runs it. See
// package soak.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

const (
	// targetPods is the approximate number of pods.
	targetPods = 60
	// rate is the number of changes per second.
	rate = 16
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
	runtime, err := simruntime.New(simruntime.Options{Seed: seed, Profile: profile, EventRetention: time.Minute})
	if err != nil {
		return nil, err
	}
	n := &node{runtime: runtime, socket: socket, rng: rand.New(rand.NewPCG(seed, 1)), faultRNG: rand.New(rand.NewPCG(seed, 2))}
	for range targetPods {
		if err := n.add(); err != nil {
			return nil, err
		}
	}
	return n, nil
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

// Name implements [soak.Node].
func (n *node) Name() string { return "simulated" }

// Endpoint implements [soak.Node].
func (n *node) Endpoint() string { return "unix://" + n.socket }

// Churn implements [soak.Node].
func (n *node) Churn(ctx context.Context, report func(string)) error {
	var parts errgroup.Group
	parts.Go(func() error { return n.changes(ctx, report) })
	parts.Go(func() error { return n.faults(ctx, report) })
	return parts.Wait()
}

func (n *node) changes(ctx context.Context, report func(string)) error {
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			name, err := n.change()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if name != "" {
				report(name)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Truth implements [soak.Node].
func (n *node) Truth(context.Context) (soak.Truth, error) {
	return kit.SimulatedTruth(n.runtime.Pods()), nil
}

func main() { os.Exit(soak.Main(start)) }

func start(ctx context.Context, seed uint64) (soak.Node, func(context.Context) error, error) {
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
