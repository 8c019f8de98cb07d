package main

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
)

const (
	// minPause and maxPause bound the time between two faults, minFault and maxFault the duration
	// of a fault.
	minPause, maxPause = 2 * time.Second, 8 * time.Second
	minFault, maxFault = 300 * time.Millisecond, 5 * time.Second
	// downtime bounds how long a restart takes.
	downtime = 3 * time.Second
)

// faults are what goes wrong with the runtime. No fault makes it report something false:
// the pipeline believes it.
var faults = []struct {
	name   string
	inject func(n *node) error
}{
	{"all calls fail", calls(simruntime.Fault{Code: codes.Unavailable})},
	{"half of the calls fail", calls(simruntime.Fault{Code: codes.Internal, Probability: 0.5})},
	{"lists fail", calls(simruntime.Fault{RPC: "ListContainers", Code: codes.Unknown})},
	{"lists hang", calls(simruntime.Fault{RPC: "ListPodSandbox", Hang: true})},
	{"lists are stale and slow", calls(simruntime.Fault{RPC: "ListContainers", Stale: true, Latency: time.Second})},
	{"statuses hang", calls(simruntime.Fault{RPC: "ContainerStatus", Hang: true, Probability: 0.2})},
	{"statuses are stale and slow", calls(simruntime.Fault{RPC: "ContainerStatus", Stale: true, Latency: 300 * time.Millisecond})},
	{"statuses are empty", calls(simruntime.Fault{RPC: "PodSandboxStatus", Malform: simruntime.NilStatus, Probability: 0.5})},
	{"statuses have no metadata", calls(simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.NilMetadata, Probability: 0.5})},
	{"statuses have other ids", calls(simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.WrongID, Probability: 0.5})},
	{"lists have duplicates", calls(simruntime.Fault{RPC: "ListContainers", Malform: simruntime.DuplicateIDs})},
	{"two calls at once", func(n *node) error { n.runtime.SetMaxConcurrent(2); return nil }},
	{"event streams break", func(n *node) error { n.runtime.BreakEvents(); return nil }},
	{"events are lost", events(simruntime.EventFaults{Loss: 0.5})},
	{"events are late", events(simruntime.EventFaults{Delay: time.Second})},
}

func calls(all ...simruntime.Fault) func(*node) error {
	return func(n *node) error {
		for _, f := range all {
			if _, err := n.runtime.Inject(f); err != nil {
				return err
			}
		}
		return nil
	}
}

func events(f simruntime.EventFaults) func(*node) error {
	return func(n *node) error { n.runtime.SetEventFaults(f); return nil }
}

// randomFault returns a fault that lasts for a while.
func (n *node) randomFault() load.Fault {
	roll := n.faultRNG.IntN(len(faults) + 2)
	if roll >= len(faults) {
		return load.Fault{Name: "the runtime is restarted", Inject: n.restart}
	}
	f := faults[roll]
	return load.Fault{Name: f.name, Inject: func(ctx context.Context) error {
		err := f.inject(n)
		load.Sleep(ctx, n.between(minFault, maxFault))
		n.runtime.ClearAll()
		n.runtime.SetMaxConcurrent(0)
		n.runtime.SetEventFaults(simruntime.EventFaults{})
		return err
	}}
}

func (n *node) restart(ctx context.Context) error {
	if err := n.stop(); err != nil {
		return err
	}
	load.Sleep(ctx, n.between(0, downtime))
	return n.serve(context.WithoutCancel(ctx))
}

func (n *node) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.faultRNG.Int64N(int64(most-least)))
}
