//go:build linux

package main

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

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
