//go:build linux

// Command soak runs the program for a long time on a real containerd whose pods
// change. "make soak" runs it; package load has the details.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/truth"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	// targetPods is the approximate number of pods.
	targetPods = 12
	// maxContainers is the maximum number of containers of a pod, dead ones included.
	maxContainers = 4
	// stepPeriod is the time between two steps, without the steps themselves.
	stepPeriod = 400 * time.Millisecond
	// faultEvery is the average number of steps between two faults.
	faultEvery = 50
	// longestFreeze is longer than the daemons' timeouts, longestOutage is how long
	// containerd stays dead.
	longestFreeze, longestOutage = 5 * time.Second, time.Second
)

// node is a lab whose pods change and whose containerd fails.
type node struct {
	lab  *lab.Lab
	rng  *rand.Rand
	pods []*lab.Pod
	made int // pods, for their names
}

func main() {
	os.Exit(load.SoakMain("containerd", func(ctx context.Context, seed uint64) (load.Node, func(context.Context) error, error) {
		l, err := lab.Start(ctx, lab.Options{})
		if err != nil {
			return nil, nil, err
		}
		return &node{lab: l, rng: rand.New(rand.NewPCG(seed, 1))}, l.Stop, nil
	}))
}

// Endpoint implements [load.Node].
func (n *node) Endpoint() string { return n.lab.Endpoint() }

// Churn implements [load.Node]. It completes each step, so that the lab's history
// has it.
func (n *node) Churn(ctx context.Context, r *load.Run) error {
	for load.Sleep(ctx, stepPeriod) {
		if err := n.step(context.WithoutCancel(ctx), r); err != nil {
			return err
		}
	}
	return nil
}

// Truth implements [load.Node]. It returns the history, with which containerd's statuses
// and lists must agree.
func (n *node) Truth(ctx context.Context) (promises.Truth, error) {
	if err := truth.Check(ctx, n.lab); err != nil {
		return nil, err
	}
	listed, err := truth.Listed(ctx, n.lab)
	if err != nil {
		return nil, err
	}
	now := truth.Of(n.lab)
	known := make(map[pleg.ContainerID]bool)
	for _, pod := range now {
		for id := range pod.Containers {
			known[id] = true
		}
	}
	if len(listed) != len(known) {
		return nil, fmt.Errorf("containerd has %d containers and sandboxes, the history %d", len(listed), len(known))
	}
	return now, nil
}

// actions are the ways to change a pod. Each returns false if it does not suit the pod.
var actions = []struct {
	name   string
	weight int
	do     func(n *node, ctx context.Context, p *lab.Pod) (done bool, err error)
}{
	{"container is started", 30, (*node).run},
	{"container is created", 4, (*node).create},
	{"container ends by itself", 20, onSome(lab.Started, (*lab.Lab).Trigger)},
	{"container is stopped", 6, onSome(lab.Started, (*lab.Lab).StopContainer)},
	{"container is killed", 6, onSome(lab.Started, (*lab.Lab).Kill)},
	{"container is removed", 18, onSome(lab.Died, (*lab.Lab).RemoveContainer)},
	{"sandbox dies and is replaced", 5, (*node).replaceSandbox},
	{"pod is stopped", 6, func(n *node, ctx context.Context, p *lab.Pod) (bool, error) {
		if !n.ready(p) {
			return false, nil
		}
		return true, n.lab.StopPod(ctx, p)
	}},
	{"pod is removed", 6, func(n *node, ctx context.Context, p *lab.Pod) (bool, error) { return true, n.remove(ctx, p) }},
}

// step adds a pod, breaks containerd, or does a random action on a pod that the action suits.
func (n *node) step(ctx context.Context, r *load.Run) error {
	switch {
	case n.rng.IntN(targetPods) >= len(n.pods) || n.rng.IntN(12) == 0 && len(n.pods) < 2*targetPods:
		r.Did("pod is added")
		n.made++
		return n.add(ctx, lab.PodSpec{
			Name: fmt.Sprintf("pod-%d", n.made), Namespace: []string{"shop", "batch"}[n.made%2], HostNetwork: n.made%3 != 0,
		})
	case n.rng.IntN(faultEvery) == 0:
		faults := []load.Fault{
			{Name: "containerd is stopped and continued", Inject: n.freeze},
			{Name: "containerd is killed and restarted", Inject: n.crash},
		}
		return r.Break(ctx, faults[n.rng.IntN(len(faults))])
	}
	var roulette []int
	for i, a := range actions {
		roulette = append(roulette, slices.Repeat([]int{i}, a.weight)...)
	}
	a, from := actions[roulette[n.rng.IntN(len(roulette))]], n.rng.IntN(len(n.pods))
	for i := range n.pods {
		done, err := a.do(n, ctx, n.pods[(from+i)%len(n.pods)])
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if done {
			r.Did(a.name)
			return nil
		}
	}
	return nil
}

func (n *node) add(ctx context.Context, spec lab.PodSpec) error {
	p, err := n.lab.RunPod(ctx, spec)
	if err == nil {
		n.pods = append(n.pods, p)
	}
	return err
}

func (n *node) remove(ctx context.Context, p *lab.Pod) error {
	n.pods = slices.DeleteFunc(n.pods, func(other *lab.Pod) bool { return other == p })
	return n.lab.RemovePod(ctx, p)
}

func (n *node) ready(p *lab.Pod) bool { return n.lab.History().Last(p.SandboxID) == lab.Started }

// some returns a random container of a ready pod whose last step was this one, or nil.
func (n *node) some(p *lab.Pod, step lab.Step) *lab.Container {
	containers := slices.DeleteFunc(p.Containers(), func(c *lab.Container) bool { return n.lab.History().Last(c.ID) != step })
	if !n.ready(p) || len(containers) == 0 {
		return nil
	}
	return containers[n.rng.IntN(len(containers))]
}

// onSome returns an action on a container whose last step was this one.
func onSome(
	step lab.Step, do func(*lab.Lab, context.Context, *lab.Container) error,
) func(*node, context.Context, *lab.Pod) (bool, error) {
	return func(n *node, ctx context.Context, p *lab.Pod) (bool, error) {
		c := n.some(p, step)
		if c == nil {
			return false, nil
		}
		return true, do(n.lab, ctx, c)
	}
}

func (n *node) create(ctx context.Context, p *lab.Pod) (bool, error) {
	if !n.ready(p) || len(p.Containers()) >= maxContainers {
		return false, nil
	}
	n.made++
	programs := []lab.Program{lab.Exit(0), lab.Exit(7)}
	_, err := n.lab.CreateContainer(ctx, p, lab.ContainerSpec{Name: fmt.Sprintf("c%d", n.made), Program: programs[n.rng.IntN(len(programs))]})
	return true, err
}

func (n *node) run(ctx context.Context, p *lab.Pod) (bool, error) {
	if n.some(p, lab.Created) == nil {
		if done, err := n.create(ctx, p); !done || err != nil {
			return done, err
		}
	}
	return true, n.lab.StartContainer(ctx, n.some(p, lab.Created))
}

// replaceSandbox kills the sandbox's process and acts like a kubelet: it removes
// the sandbox and creates the pod's next one.
func (n *node) replaceSandbox(ctx context.Context, p *lab.Pod) (bool, error) {
	if !n.ready(p) {
		return false, nil
	}
	if err := n.lab.KillSandbox(ctx, p); err != nil {
		return false, err
	}
	if err := n.remove(ctx, p); err != nil {
		return false, err
	}
	return true, n.add(ctx, lab.PodSpec{
		Name: p.Name, Namespace: p.Namespace, UID: p.UID, Attempt: p.Attempt + 1, HostNetwork: n.rng.IntN(3) != 0,
	})
}

func (n *node) freeze(ctx context.Context) error {
	if err := n.lab.Freeze(ctx); err != nil {
		return err
	}
	load.Sleep(ctx, rand.N(longestFreeze))
	return n.lab.Thaw()
}

// crash kills a container while containerd is down.
func (n *node) crash(ctx context.Context) error {
	var victim *lab.Container
	for _, p := range n.pods {
		if victim == nil {
			victim = n.some(p, lab.Started)
		}
	}
	n.lab.Crash()
	if victim != nil {
		if err := n.lab.KillProcess(ctx, victim); err != nil {
			return err
		}
	}
	load.Sleep(ctx, rand.N(longestOutage))
	if err := n.lab.Revive(ctx); err != nil || victim == nil {
		return err
	}
	return n.lab.AwaitDied(ctx, victim)
}
