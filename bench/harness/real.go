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
// candidate is stopped, so that one relist shows all of them.
type realPods struct{ pods, containers int }

func onContainerd() []Scenario {
	w := realPods{pods: 50, containers: 2}
	return []Scenario{{
		Name:       fmt.Sprintf("containerd/pods=%d", w.pods),
		Title:      fmt.Sprintf("%d real pods x %d exit at once on a real containerd", w.pods, w.containers),
		Candidates: candidates(everyone), Measure: w.measure,
	}}
}

// containerd returns the real node of this run and starts it at the first call:
// making its pods takes longer than measuring.
func (b *bench) containerd(ctx context.Context) (*node, string, error) {
	socket := filepath.Join(b.temp, "containerd.sock")
	if b.realNode != nil {
		return b.realNode, socket, nil
	}
	if _, err := os.Stat(b.program("containerd")); err != nil {
		return nil, "", fmt.Errorf("the program that runs containerd is missing (make -C bench containerd builds it): %w", err)
	}
	// It outlives the candidate that is measured first; close ends it.
	n, err := start[control.Order, control.Answer](context.WithoutCancel(ctx), b.program("containerd"),
		"-socket", socket, "-e2e", filepath.Join(b.root, "tests", "e2e"))
	if err != nil {
		return nil, "", err
	}
	// It has to remove mounts and cgroups before it ends.
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(syscall.SIGTERM) }
	n.grace, n.cmd.WaitDelay = realGrace, realGrace
	b.realNode = n
	return n, socket, nil
}

// realGrace is how long the real node may take to remove its pods.
const realGrace = 2 * time.Minute

func (w realPods) measure(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	n, socket, err := b.containerd(ctx)
	l := &lab{candidate: c, node: n, err: err}
	l.order(control.Order{Do: control.NodePopulate, Pods: w.pods, Containers: w.containers})
	l.connect(ctx, b, socket, relistPeriod, callTimeout)
	defer l.client.stop()
	l.startClient(started(w.pods, w.containers))
	r := l.window(exited(w.pods, w.containers), false, l.burstWhileStopped)
	m := l.burstMetrics(r, w.pods)
	m.remove("peak", "waiting", "calls") // a real runtime does not count its calls
	return m, l.err
}

// burstWhileStopped lets all containers exit while the client's process is stopped.
func (l *lab) burstWhileStopped() {
	if l.err != nil {
		return
	}
	client := l.client.cmd.Process
	l.fail(client.Signal(syscall.SIGSTOP))
	l.order(control.Order{Do: control.NodeBurst}, control.Order{Do: control.NodeReset})
	l.fail(client.Signal(syscall.SIGCONT))
}
