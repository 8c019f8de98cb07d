package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// realPods are pods on a real containerd whose containers all exit while the
// candidate is stopped, so that one relist shows it all.
type realPods struct{ pods, containers int }

func onContainerd() []Scenario {
	w := realPods{pods: 50, containers: 2}
	return []Scenario{{
		Name:       fmt.Sprintf("containerd/pods=%d", w.pods),
		Group:      "containerd",
		Title:      fmt.Sprintf("%d real pods x %d exit at once on a real containerd", w.pods, w.containers),
		Candidates: withFixed(), Measure: w.measure,
	}}
}

// containerd returns the one real node of this run, which is started when it is
// first needed: making its pods takes longer than measuring.
func (b *bench) containerd(ctx context.Context) (*node, string, error) {
	socket := filepath.Join(b.temp, "containerd.sock")
	if b.realNode != nil {
		return b.realNode, socket, nil
	}
	if _, err := os.Stat(b.program("containerd")); err != nil {
		return nil, "", fmt.Errorf("the program that runs containerd is missing (make -C bench containerd builds it): %w", err)
	}
	n, err := start[control.Order, control.Answer](ctx, b.program("containerd"),
		"-socket", socket, "-e2e", filepath.Join(b.root, "tests", "e2e"))
	if err != nil {
		return nil, "", err
	}
	// Not killed in haste: it has mounts and cgroups to take down.
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(syscall.SIGTERM) }
	n.grace, n.cmd.WaitDelay = realGrace, realGrace
	b.realNode = n
	return n, socket, nil
}

// realGrace is how long the real node may take to remove its pods.
const realGrace = 2 * time.Minute

func (w realPods) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	n, socket, err := b.containerd(ctx)
	if err != nil {
		return nil, err
	}
	l := &lab{node: n}
	if err := l.order(control.Order{Do: control.NodePopulate, Pods: w.pods, Containers: w.containers}); err != nil {
		return nil, err
	}
	l.client, err = b.newClient(ctx, c, socket, settings{period: relistPeriod, timeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	defer l.client.stop()
	if err := l.startClient(started(w.pods, w.containers)); err != nil {
		return nil, err
	}
	want := exited(w.pods, w.containers)
	if err := l.expect(want, false); err != nil {
		return nil, err
	}
	if err := l.whileStopped(control.Order{Do: control.NodeBurst}, control.Order{Do: control.NodeReset}); err != nil {
		return nil, err
	}
	r, err := l.wait(want, longest)
	if err != nil {
		return nil, err
	}
	m, err := l.burstMetrics(c, r, w.pods)
	// A real runtime does not count its calls.
	for _, key := range []string{"peak", "waiting", "calls"} {
		delete(m, key)
	}
	return m, err
}

// whileStopped gives orders while the client's process stands still.
func (l *lab) whileStopped(orders ...control.Order) error {
	client := l.client.cmd.Process
	if err := client.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop the client: %w", err)
	}
	if err := l.order(orders...); err != nil {
		return err
	}
	if err := client.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("continue the client: %w", err)
	}
	return nil
}
