//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// maxContainers is the maximum number of containers of a pod, dead ones included.
const maxContainers = 4

func (n *node) add(ctx context.Context) error {
	n.made++
	p, err := n.lab.RunPod(ctx, lab.PodSpec{
		Name: fmt.Sprintf("pod-%d", n.made), Namespace: []string{"shop", "batch"}[n.made%2], HostNetwork: n.made%3 != 0,
	})
	if err != nil {
		return err
	}
	n.pods = append(n.pods, p)
	return nil
}

func (n *node) spec() lab.ContainerSpec {
	n.made++
	programs := []lab.Program{lab.Exit(0), lab.Exit(7), lab.Panic()}
	return lab.ContainerSpec{Name: fmt.Sprintf("c%d", n.made), Program: programs[n.rng.IntN(len(programs))]}
}

// some returns a random container of a running pod whose last step was this one,
// or nil.
func (n *node) some(p *lab.Pod, step lab.Step) *lab.Container {
	if n.lab.History().Last(p.SandboxID) != lab.Started {
		return nil
	}
	var chosen *lab.Container
	seen := 0
	for _, c := range p.Containers() {
		if n.lab.History().Last(c.ID) == step {
			if seen++; n.rng.IntN(seen) == 0 {
				chosen = c
			}
		}
	}
	return chosen
}

func (n *node) run(ctx context.Context, p *lab.Pod) (bool, error) {
	if c := n.some(p, lab.Created); c != nil {
		return true, n.lab.StartContainer(ctx, c)
	}
	if n.lab.History().Last(p.SandboxID) != lab.Started || len(p.Containers()) >= maxContainers {
		return false, nil
	}
	_, err := n.lab.RunContainer(ctx, p, n.spec())
	return true, err
}

func (n *node) create(ctx context.Context, p *lab.Pod) (bool, error) {
	if n.lab.History().Last(p.SandboxID) != lab.Started || len(p.Containers()) >= maxContainers {
		return false, nil
	}
	_, err := n.lab.CreateContainer(ctx, p, n.spec())
	return true, err
}

// running calls do with a running container of the pod, if there is one.
func (n *node) running(p *lab.Pod, do func(*lab.Container) error) (bool, error) {
	c := n.some(p, lab.Started)
	if c == nil {
		return false, nil
	}
	return true, do(c)
}

func (n *node) trigger(ctx context.Context, p *lab.Pod) (bool, error) {
	return n.running(p, func(c *lab.Container) error { return n.lab.Trigger(ctx, c) })
}

func (n *node) stop(ctx context.Context, p *lab.Pod) (bool, error) {
	return n.running(p, func(c *lab.Container) error { return n.lab.StopContainer(ctx, c) })
}

func (n *node) kill(ctx context.Context, p *lab.Pod) (bool, error) {
	return n.running(p, func(c *lab.Container) error { return n.lab.Kill(ctx, c) })
}

func (n *node) remove(ctx context.Context, p *lab.Pod) (bool, error) {
	c := n.some(p, lab.Died)
	if c == nil {
		return false, nil
	}
	return true, n.lab.RemoveContainer(ctx, c)
}

// replaceSandbox kills the sandbox's process and acts like a kubelet: it removes
// the sandbox and creates the pod's next one.
func (n *node) replaceSandbox(ctx context.Context, p *lab.Pod) (bool, error) {
	if n.lab.History().Last(p.SandboxID) != lab.Started {
		return false, nil
	}
	if err := n.lab.KillSandbox(ctx, p); err != nil {
		return false, err
	}
	if err := n.lab.RemovePod(ctx, p); err != nil {
		return false, err
	}
	n.drop(p)
	next, err := n.lab.RunPod(ctx, lab.PodSpec{
		Name: p.Name, Namespace: p.Namespace, UID: p.UID, Attempt: p.Attempt + 1, HostNetwork: n.rng.IntN(3) != 0,
	})
	if err == nil {
		n.pods = append(n.pods, next)
	}
	return true, err
}

func (n *node) stopAndRemove(ctx context.Context, p *lab.Pod) (bool, error) {
	if n.lab.History().Last(p.SandboxID) == lab.Started {
		return true, n.lab.StopPod(ctx, p)
	}
	return n.removePod(ctx, p)
}

func (n *node) removePod(ctx context.Context, p *lab.Pod) (bool, error) {
	if err := n.lab.RemovePod(ctx, p); err != nil {
		return false, err
	}
	n.drop(p)
	return true, nil
}

func (n *node) drop(p *lab.Pod) {
	n.pods = slices.DeleteFunc(n.pods, func(other *lab.Pod) bool { return other == p })
}
