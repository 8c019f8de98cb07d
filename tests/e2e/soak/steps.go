//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// onSome is an action on a container whose last step was this one.
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

// longestFreeze is longer than the agents' timeouts.
const longestFreeze = 5 * time.Second

// fault breaks containerd and waits until it works again.
func (n *node) fault(ctx context.Context) (string, error) {
	if n.rng.IntN(2) == 0 {
		return "fault: containerd is stopped and continued", n.freeze(ctx)
	}
	return "fault: containerd is killed and restarted", n.crash(ctx)
}

func (n *node) freeze(ctx context.Context) error {
	if err := n.lab.Freeze(ctx); err != nil {
		return err
	}
	time.Sleep(time.Duration(n.rng.Int64N(int64(longestFreeze))))
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
	time.Sleep(time.Duration(n.rng.Int64N(int64(time.Second))))
	if err := n.lab.Revive(ctx); err != nil {
		return err
	}
	if victim == nil {
		return nil
	}
	return n.lab.AwaitDied(ctx, victim)
}
