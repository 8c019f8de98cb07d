package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/node"
)

// realPods are on a real containerd, with containers that all exit while the candidate is
// stopped, so that one relist shows all of them.
const realPods, realContainers = 50, 2

func onContainerd() []Scenario {
	return []Scenario{{
		Name:       fmt.Sprintf("containerd/pods=%d", realPods),
		Title:      fmt.Sprintf("%d real pods x %d exit at once on a real containerd", realPods, realContainers),
		Candidates: candidates(everyone), Measure: measureReal,
	}}
}

// containerd returns the real node of this run and starts it at the first call:
// making its pods takes longer than measuring.
func (b *bench) containerd(ctx context.Context) (*control.Child, string, error) {
	socket := filepath.Join(b.temp, "containerd.sock")
	if b.realNode != nil {
		return b.realNode, socket, nil
	}
	if _, err := os.Stat(b.program("containerd")); err != nil {
		return nil, "", fmt.Errorf("the program that runs containerd is missing (make -C bench containerd builds it): %w", err)
	}
	// It outlives the candidate that is measured first; close ends it.
	n, err := control.Start(context.WithoutCancel(ctx), b.program("containerd"),
		"-socket", socket, "-e2e", filepath.Join(b.root, "tests", "e2e"))
	if err != nil {
		return nil, "", err
	}
	// It has to remove mounts and cgroups before it ends.
	n.Cancel = func() error { return n.Process.Signal(syscall.SIGTERM) }
	n.Grace, n.WaitDelay = realGrace, realGrace
	b.realNode = n
	return n, socket, nil
}

// realGrace is how long the real node may take to remove its pods.
const realGrace = 2 * time.Minute

func measureReal(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
	n, socket, err := b.containerd(ctx)
	l := &lab{candidate: c, err: err}
	l.order(n, control.Order{Do: control.NodePopulate, Pods: realPods, Containers: realContainers})
	l.connect(ctx, b, socket, relistPeriod, callTimeout)
	defer l.client.Stop()
	l.startClient(started(realPods, realContainers))
	r := l.window(exited(realPods, realContainers), func() {
		if l.err != nil {
			return
		}
		client := l.client.Process
		l.fail(client.Signal(syscall.SIGSTOP))
		l.order(n, control.Order{Do: control.NodeBurst})
		l.fail(client.Signal(syscall.SIGCONT))
	})
	cpu := l.order(n, control.Order{Do: control.NodeStats}).CPUSeconds
	m := l.burstMetrics(r, node.Stats{CPUSeconds: cpu}, realPods)
	delete(m, "waiting") // a real runtime does not count its calls
	delete(m, "calls")
	return m, l.err
}

// order sends an order to the real node.
func (l *lab) order(n *control.Child, o control.Order) (a control.Answer) {
	if l.err == nil {
		l.err = n.Ask(o, &a)
	}
	if a.Err != "" {
		l.fail(errors.New(a.Err))
	}
	return a
}
