//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

const (
	// targetPods is about the number of pods there are.
	targetPods = 12
	// stepPeriod is the time between two steps; what a step takes comes on top.
	stepPeriod = 400 * time.Millisecond
	// faultEvery is how many steps come between two faults, on average.
	faultEvery = 50
)

// node is a lab that churns and breaks.
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

// Churn implements [soak.Node]. A step that has begun is brought to its end, as
// the lab's ledger has to know it.
func (n *node) Churn(ctx context.Context, tell func(string)) error {
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
				tell(name)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// deed is something that can be done to a pod; done is false if not to this one.
type deed struct {
	name   string
	weight int
	do     func(n *node, ctx context.Context, p *lab.Pod) (done bool, err error)
}

var deeds = []deed{
	{"container is started", 30, (*node).run},
	{"container is created", 4, (*node).create},
	{"container ends by itself", 20, (*node).trigger},
	{"container is stopped", 6, (*node).stop},
	{"container is killed", 6, (*node).kill},
	{"container is removed", 18, (*node).remove},
	{"sandbox dies and is replaced", 5, (*node).replaceSandbox},
	{"pod is stopped and removed", 7, (*node).stopAndRemove},
	{"pod is removed", 4, (*node).removePod},
}

// step does one thing at random and returns its name, or "" if what came up
// cannot be done.
func (n *node) step(ctx context.Context) (string, error) {
	if n.rng.IntN(targetPods) >= len(n.pods) || n.rng.IntN(12) == 0 && len(n.pods) < 2*targetPods {
		return "pod is added", n.add(ctx)
	}
	if n.rng.IntN(faultEvery) == 0 {
		return n.fault(ctx)
	}
	sum := 0
	for _, d := range deeds {
		sum += d.weight
	}
	roll := n.rng.IntN(sum)
	for _, d := range deeds {
		if roll -= d.weight; roll < 0 {
			return n.attempt(ctx, d)
		}
	}
	panic("soak: a roll beyond all weights")
}

// attempt does a deed to the first pod that allows it, from a random one on.
func (n *node) attempt(ctx context.Context, d deed) (string, error) {
	from := n.rng.IntN(len(n.pods))
	for i := range n.pods {
		done, err := d.do(n, ctx, n.pods[(from+i)%len(n.pods)])
		if done || err != nil {
			return d.name, err
		}
	}
	return "", nil
}
