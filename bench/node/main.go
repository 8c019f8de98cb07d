// Command node serves a simulated container runtime on a socket and changes its
// pods on request. It is a process of its own so that the runtime's CPU time is
// separate from the client's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func main() {
	socket := flag.String("socket", "", "socket to serve on")
	carried := flag.Bool("statuses-in-sandbox", false, "let sandbox statuses carry those of the containers")
	flag.Parse()
	if err := run(context.Background(), *socket, *carried); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, socket string, carried bool) error {
	if socket == "" {
		return errors.New("-socket is required")
	}
	runtime, err := simruntime.New(simruntime.Options{Seed: 1, StatusesInSandbox: carried})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The node listens before its first answer: a client may connect at once.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- runtime.Serve(ctx, listener) }()
	n := &node{runtime: runtime}
	err = control.Serve(os.Stdin, os.Stdout, func(o control.Order) control.Answer {
		return n.handle(ctx, o)
	})
	cancel()
	if ended := <-served; !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	return err
}

// node handles one order after the other.
type node struct {
	runtime *simruntime.Runtime
	// cpu is the CPU time at the last reset.
	cpu float64
}

func (n *node) handle(ctx context.Context, o control.Order) control.Answer {
	var answer control.Answer
	var err error
	switch o.Do {
	case control.NodePopulate:
		answer.Changed, err = n.populate(o)
	case control.NodeShape:
		err = n.shape(o)
	case control.NodeBurst:
		n.reset()
		change, ok := changes[o.Change]
		if !ok {
			return control.Answer{Err: fmt.Sprintf("unknown change %q: have restart and exit", o.Change)}
		}
		answer.Changed = len(n.runtime.Burst(o.Pods, change))
	case control.NodeHang:
		answer.Changed, err = n.hang(o.Pods)
	case control.NodeChurn:
		n.reset()
		answer, err = n.churn(ctx, o)
	case control.NodeReset:
		n.reset()
	case control.NodeStats:
		answer = n.stats()
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	if err != nil {
		answer.Err = err.Error()
	}
	return answer
}

var changes = map[string]simruntime.Change{"restart": simruntime.Restart, "exit": simruntime.Exit}

// A larger node does not fit into memory.
const mostPods, mostContainers = 100_000, 1000

func (n *node) populate(o control.Order) (int, error) {
	if o.Pods > mostPods || o.Containers > mostContainers {
		return 0, fmt.Errorf("populate: %d pods of %d containers, want at most %d of %d", o.Pods, o.Containers, mostPods, mostContainers)
	}
	population := simruntime.Population{Pods: o.Pods, Containers: o.Containers}
	if o.Finished {
		population.Exited = o.Containers
	}
	pods, err := n.runtime.Populate(population)
	if err != nil {
		return 0, err
	}
	n.runtime.Update(func(tx *simruntime.Txn) {
		for _, p := range pods {
			if o.Finished && err == nil {
				err = tx.StopPod(p.UID)
			}
		}
	})
	return len(pods), err
}

func (n *node) shape(o control.Order) error {
	profile, err := simruntime.NewProfile(o.Profile)
	if err != nil {
		return err
	}
	n.runtime.SetMaxConcurrent(o.Limit)
	return n.runtime.SetProfile(profile)
}

// hang makes the status calls of the first pods hang until their deadline.
func (n *node) hang(pods int) (int, error) {
	all := n.runtime.Pods()
	if pods > len(all) {
		return 0, fmt.Errorf("hang: %d pods of %d", pods, len(all))
	}
	for _, p := range all[:pods] {
		if _, err := n.runtime.Inject(simruntime.Fault{PodUID: p.UID, Hang: true}); err != nil {
			return 0, err
		}
	}
	return pods, nil
}

// churn replaces the first container of one pod after the other at a steady rate.
// The pods take turns: two changes of one pod are as far apart as possible, so that
// a relist sees both. It blocks until the end, and answers with the time of each
// new container.
func (n *node) churn(ctx context.Context, o control.Order) (control.Answer, error) {
	pods := n.runtime.Pods()
	total := int(o.Rate * o.Seconds)
	answer := control.Answer{Log: make([]control.Arrival, 0, total)}
	began := time.Now()
	for i := range total {
		due := began.Add(time.Duration(float64(i) / o.Rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
		id, err := n.replace(pods[i%len(pods)].UID)
		if err != nil {
			return answer, err
		}
		answer.Log = append(answer.Log, control.Arrival{Type: "ContainerStarted", ID: id, UnixNS: time.Now().UnixNano()})
	}
	answer.Changed = total
	return answer, nil
}

// replace restarts the first container of a pod, removes the exited one and
// returns the ID of the new one.
func (n *node) replace(uid string) (id string, err error) {
	n.runtime.Update(func(tx *simruntime.Txn) {
		pod, _ := tx.Pod(uid)
		var next simruntime.Container
		if next, err = tx.RestartContainer(pod.Containers[0].ID); err == nil {
			id, err = next.ID, tx.PruneDead(uid)
		}
	})
	return id, err
}

func (n *node) reset() {
	n.runtime.ResetStats()
	n.cpu = control.CPUSeconds()
}

func (n *node) stats() control.Answer {
	s := n.runtime.Stats()
	a := control.Answer{
		PeakInFlight: s.PeakInFlight, PeakArrived: s.PeakArrived,
		CPUSeconds: control.CPUSeconds() - n.cpu, RPCs: make(map[string]control.RPC, len(s.RPCs)),
	}
	for name, r := range s.RPCs {
		a.RPCs[name] = control.RPC{Calls: r.Calls, TimeMS: float64(r.Time) / float64(time.Millisecond)}
	}
	return a
}
