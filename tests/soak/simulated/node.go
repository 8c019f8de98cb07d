package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

const (
	// targetPods is about the number of pods there are.
	targetPods = 60
	// rate is the number of steps a second.
	rate = 16
)

// node is a simulated runtime that churns and breaks.
type node struct {
	runtime *simruntime.Runtime
	socket  string
	rng     *rand.Rand // of the churn
	luck    *rand.Rand // of the faults

	end    context.CancelFunc // ends the server
	served chan error         // gets what it returned
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
	n := &node{runtime: runtime, socket: socket, rng: rand.New(rand.NewPCG(seed, 1)), luck: rand.New(rand.NewPCG(seed, 2))}
	for range targetPods {
		if err := n.add(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// serve makes the socket, a new one each time, and answers on it until stop.
func (n *node) serve(ctx context.Context) error {
	l, err := unixsocket.Listen(ctx, n.socket)
	if err != nil {
		return err
	}
	// It goes down last, when the soak has ended or in a fault.
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
func (n *node) Churn(ctx context.Context, tell func(string)) error {
	var parts errgroup.Group
	parts.Go(func() error { return n.steps(ctx, tell) })
	parts.Go(func() error { return n.faults(ctx, tell) })
	return parts.Wait()
}

func (n *node) steps(ctx context.Context, tell func(string)) error {
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			deed, err := n.step()
			if err != nil {
				return fmt.Errorf("%s: %w", deed, err)
			}
			if deed != "" {
				tell(deed)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Truth implements [soak.Node].
func (n *node) Truth(context.Context) (soak.Truth, error) {
	truth := make(soak.Truth)
	for _, p := range n.runtime.Pods() {
		pod := soak.Pod{Namespace: p.Namespace, Name: p.Name, Containers: make(map[pleg.ContainerID]soak.Container)}
		for _, sb := range p.Sandboxes {
			c := soak.Container{Sandbox: true, State: pleg.StateExited, Attempt: sb.Attempt}
			if sb.Ready {
				c.State, c.IP = pleg.StateRunning, sb.IPs[0]
			}
			pod.Containers[pleg.ContainerID(sb.ID)] = c
		}
		for _, t := range p.Containers {
			c := soak.Container{State: states[t.State], Attempt: t.Attempt}
			if t.State == simruntime.Exited {
				c.ExitCode, c.Reason = t.ExitCode, t.Reason
			}
			pod.Containers[pleg.ContainerID(t.ID)] = c
		}
		truth[pleg.PodUID(p.UID)] = pod
	}
	return truth, nil
}

var states = map[simruntime.State]pleg.State{
	simruntime.Running: pleg.StateRunning, simruntime.Created: pleg.StateCreated, simruntime.Exited: pleg.StateExited,
}
