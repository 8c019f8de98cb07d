package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const (
	// minPause and maxPause bound the time between two faults, minFault and maxFault the
	// duration of one.
	minPause, maxPause = 2 * time.Second, 8 * time.Second
	minFault, maxFault = 300 * time.Millisecond, 5 * time.Second
	// downtime bounds how long a restart takes.
	downtime = 3 * time.Second
)

// fault is something that goes wrong with the runtime. What inject sets is cleared after it.
type fault struct {
	name   string
	inject func(n *node) error
}

// No fault makes the runtime report something false: the pipeline believes it.
var faults = []fault{
	{"fault: all calls fail", injecting(simruntime.Fault{Code: codes.Unavailable})},
	{"fault: half of the calls fail", injecting(simruntime.Fault{Code: codes.Internal, Probability: 0.5})},
	{"fault: lists fail", injecting(
		simruntime.Fault{RPC: "StreamContainers", Code: codes.Unknown}, simruntime.Fault{RPC: "ListContainers", Code: codes.Unknown})},
	{"fault: lists hang", injecting(
		simruntime.Fault{RPC: "StreamPodSandboxes", Hang: true}, simruntime.Fault{RPC: "ListPodSandbox", Hang: true})},
	{"fault: lists are truncated", injecting(simruntime.Fault{RPC: "StreamContainers", Messages: 1, Code: codes.Unavailable})},
	{"fault: lists are stale and slow", injecting(simruntime.Fault{RPC: "StreamContainers", Stale: true, Latency: simruntime.Latency{P50: time.Second, P99: 2 * time.Second}})},
	{"fault: statuses hang", injecting(simruntime.Fault{RPC: "ContainerStatus", Hang: true, Probability: 0.2})},
	{"fault: statuses are stale and slow", injecting(simruntime.Fault{RPC: "ContainerStatus", Stale: true, Latency: simruntime.Latency{P50: 300 * time.Millisecond, P99: time.Second}})},
	{"fault: statuses are empty", injecting(simruntime.Fault{RPC: "PodSandboxStatus", Malform: simruntime.NilStatus, Probability: 0.5})},
	{"fault: statuses have no metadata", injecting(simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.NilMetadata, Probability: 0.5})},
	{"fault: statuses have other ids", injecting(simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.WrongID, Probability: 0.5})},
	{"fault: lists have duplicates", injecting(simruntime.Fault{RPC: "StreamContainers", Malform: simruntime.DuplicateIDs})},
	{"fault: two calls at once", func(n *node) error { n.runtime.SetMaxConcurrent(2); return nil }},
	{"fault: event streams break", func(n *node) error { n.runtime.BreakEvents(); return nil }},
	{"fault: events are lost", withEvents(simruntime.EventFaults{Loss: 0.5})},
	{"fault: events are duplicated and reordered", withEvents(simruntime.EventFaults{Duplicate: 0.3, Reorder: 0.3})},
	{"fault: events are late", withEvents(simruntime.EventFaults{Delay: time.Second})},
	{"fault: event streams start with old events", func(n *node) error {
		if err := n.runtime.SetEventFaults(simruntime.EventFaults{Replay: 200}); err != nil {
			return err
		}
		n.runtime.BreakEvents()
		return nil
	}},
}

func injecting(all ...simruntime.Fault) func(*node) error {
	return func(n *node) error {
		for _, f := range all {
			if _, err := n.runtime.Inject(f); err != nil {
				return err
			}
		}
		return nil
	}
}

func withEvents(f simruntime.EventFaults) func(*node) error {
	return func(n *node) error { return n.runtime.SetEventFaults(f) }
}

// faults breaks the runtime now and then until ctx ends. Then it works again.
func (n *node) faults(ctx context.Context, report func(string)) error {
	for pause(ctx, n.between(minPause, maxPause)) {
		name, err := n.fault(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		report(name)
	}
	return nil
}

func (n *node) fault(ctx context.Context) (name string, err error) {
	roll := n.faultRNG.IntN(len(faults) + 2)
	if roll >= len(faults) {
		return "fault: the runtime is restarted", n.restartRuntime(ctx)
	}
	f := faults[roll]
	err = f.inject(n)
	pause(ctx, n.between(minFault, maxFault))
	n.runtime.ClearAll()
	n.runtime.SetMaxConcurrent(0)
	if err == nil {
		err = n.runtime.SetEventFaults(simruntime.EventFaults{})
	}
	return f.name, err
}

func (n *node) restartRuntime(ctx context.Context) error {
	if err := n.stop(); err != nil {
		return err
	}
	pause(ctx, n.between(0, downtime))
	return n.serve(ctx)
}

func (n *node) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.faultRNG.Int64N(int64(most-least)))
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
