// Package node is the simulated container runtime of one measurement.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// Node is a simulated runtime on a socket. It works in the process of the harness, which
// does nothing else while a candidate in a process of its own is measured.
type Node struct {
	runtime *simruntime.Runtime
	stop    context.CancelFunc
	served  chan error
	cpu     float64 // of this process at the last reset
}

// Start serves until Stop. If carried, sandbox statuses carry those of the containers.
func Start(ctx context.Context, socket string, carried bool) (*Node, error) {
	sim, err := simruntime.New(simruntime.Options{Seed: 1, StatusesInSandbox: carried})
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("simulate a node: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	n := &Node{runtime: sim, stop: stop, served: make(chan error, 1)}
	go func() { n.served <- sim.Serve(ctx, listener) }()
	return n, nil
}

// Stop ends the node.
func (n *Node) Stop() error {
	n.stop()
	if err := <-n.served; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Populate adds pods whose containers run.
func (n *Node) Populate(pods, containers int) error {
	_, err := n.runtime.Populate(simruntime.Population{Pods: pods, Containers: containers})
	return err
}

// PopulateFinished adds pods that have exited containers and a sandbox that is not ready.
func (n *Node) PopulateFinished(pods, containers int) error {
	added, err := n.runtime.Populate(simruntime.Population{Pods: pods, Containers: containers, Exited: containers})
	n.runtime.Update(func(tx *simruntime.Txn) {
		for _, p := range added {
			err = errors.Join(err, tx.StopPod(p.UID))
		}
	})
	return err
}

// Shape sets the latency profile and the number of calls that execute at once; 0 means any.
func (n *Node) Shape(profile string, limit int) error {
	p, err := simruntime.NewProfile(profile)
	if err != nil {
		return err
	}
	n.runtime.SetMaxConcurrent(limit)
	return n.runtime.SetProfile(p)
}

// Hang makes the status calls of the first pods hang until their deadline.
func (n *Node) Hang(pods int) error {
	for _, p := range n.runtime.Pods()[:pods] {
		if _, err := n.runtime.Inject(simruntime.Fault{PodUID: p.UID, Hang: true}); err != nil {
			return err
		}
	}
	return nil
}

// Burst resets the counters and changes pods in one step.
func (n *Node) Burst(pods int, change simruntime.Change) {
	n.Reset()
	n.runtime.Burst(pods, change)
}

// Churn resets the counters and replaces the first container of one pod after the other,
// a number of times, at a rate in one second. The pods take turns: two changes of one pod
// are as far apart as possible, so that a relist sees both. It returns each new container
// and its time.
func (n *Node) Churn(ctx context.Context, rate float64, times int) ([]control.Arrival, error) {
	n.Reset()
	pods := n.runtime.Pods()
	var made []control.Arrival
	began := time.Now()
	for i := range times {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return made, context.Cause(ctx)
		}
		id, err := n.replace(pods[i%len(pods)].UID)
		if err != nil {
			return made, err
		}
		made = append(made, control.Arrival{Type: "ContainerStarted", ID: id, UnixNS: time.Now().UnixNano()})
	}
	return made, nil
}

// replace restarts the first container of a pod, removes the exited one and
// returns the ID of the new one.
func (n *Node) replace(uid string) (id string, err error) {
	n.runtime.Update(func(tx *simruntime.Txn) {
		pod, _ := tx.Pod(uid)
		var next simruntime.Container
		if next, err = tx.RestartContainer(pod.Containers[0].ID); err == nil {
			id, err = next.ID, tx.PruneDead(uid)
		}
	})
	return id, err
}

// Stats are the counters since the last reset.
type Stats struct {
	simruntime.Stats
	CPUSeconds float64
}

// StatusCalls is the number of calls for the status of a sandbox or a container.
func (s Stats) StatusCalls() int64 {
	return s.RPCs["ContainerStatus"].Calls + s.RPCs["PodSandboxStatus"].Calls
}

// Reset sets the counters to zero.
func (n *Node) Reset() {
	runtime.GC() // the garbage of earlier measurements costs this one nothing
	n.runtime.ResetStats()
	n.cpu = control.CPUSeconds()
}

// Stats returns the counters.
func (n *Node) Stats() Stats {
	return Stats{Stats: n.runtime.Stats(), CPUSeconds: control.CPUSeconds() - n.cpu}
}
