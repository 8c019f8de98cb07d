//go:build linux

// Command soak runs the program for a long time on a real containerd whose pods
// change. "make soak" runs it; package tests/soak has the details.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

func main() { os.Exit(soak.Main(start)) }

func start(ctx context.Context, seed uint64) (soak.Node, func(context.Context) error, error) {
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return nil, nil, err
	}
	return newNode(l, seed), l.Stop, nil
}

const (
	// targetPods is the approximate number of pods.
	targetPods = 12
	// stepPeriod is the time between two steps, without the steps themselves.
	stepPeriod = 400 * time.Millisecond
	// faultEvery is the average number of steps between two faults.
	faultEvery = 50
)

// node is a lab whose pods change and whose containerd fails.
type node struct {
	lab  *lab.Lab
	rng  *rand.Rand
	pods []*lab.Pod
	made int // pods, for their names
}

func newNode(l *lab.Lab, seed uint64) *node {
	return &node{lab: l, rng: rand.New(rand.NewPCG(seed, 1))}
}

// Name implements [soak.Node].
func (n *node) Name() string { return "containerd" }

// Endpoint implements [soak.Node].
func (n *node) Endpoint() string { return n.lab.Endpoint() }

// Churn implements [soak.Node]. It completes each step, so that the lab's history
// has it.
func (n *node) Churn(ctx context.Context, report func(string)) error {
	ticker := time.NewTicker(stepPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			name, err := n.step(context.WithoutCancel(ctx))
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

// action is one way to change a pod; done is false if it does not suit this pod.
type action struct {
	name   string
	weight int
	do     func(n *node, ctx context.Context, p *lab.Pod) (done bool, err error)
}

var actions = []action{
	{"container is started", 30, (*node).run},
	{"container is created", 4, (*node).create},
	{"container ends by itself", 20, onSome(lab.Started, (*lab.Lab).Trigger)},
	{"container is stopped", 6, onSome(lab.Started, (*lab.Lab).StopContainer)},
	{"container is killed", 6, onSome(lab.Started, (*lab.Lab).Kill)},
	{"container is removed", 18, onSome(lab.Died, (*lab.Lab).RemoveContainer)},
	{"sandbox dies and is replaced", 5, (*node).replaceSandbox},
	{"pod is stopped and removed", 7, (*node).stopAndRemove},
	{"pod is removed", 4, (*node).removePod},
}

// step runs a random action and returns its name, or "" if it suits no pod.
func (n *node) step(ctx context.Context) (string, error) {
	if n.rng.IntN(targetPods) >= len(n.pods) || n.rng.IntN(12) == 0 && len(n.pods) < 2*targetPods {
		return "pod is added", n.add(ctx)
	}
	if n.rng.IntN(faultEvery) == 0 {
		return n.fault(ctx)
	}
	sum := 0
	for _, a := range actions {
		sum += a.weight
	}
	roll := n.rng.IntN(sum)
	for _, a := range actions {
		if roll -= a.weight; roll < 0 {
			return n.attempt(ctx, a)
		}
	}
	panic("soak: random number exceeds all weights")
}

// attempt runs an action on the first suitable pod, starting at a random one.
func (n *node) attempt(ctx context.Context, a action) (string, error) {
	from := n.rng.IntN(len(n.pods))
	for i := range n.pods {
		done, err := a.do(n, ctx, n.pods[(from+i)%len(n.pods)])
		if done || err != nil {
			return a.name, err
		}
	}
	return "", nil
}
