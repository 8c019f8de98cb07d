package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// maxContainers is the number of containers of a pod at which its exited ones are
// removed.
const maxContainers = 8

var namespaces = []string{"shop", "batch", "kube-system"}

// change is a possible change of a pod. apply reports whether it changed this pod.
type change struct {
	name   string
	weight int
	apply  applyFunc
}

type applyFunc func(n *node, tx *simruntime.Txn, p simruntime.Pod) (done bool, err error)

// withContainer changes a random container in a state.
func withContainer(state simruntime.State, do func(*simruntime.Txn, string) error) applyFunc {
	return func(n *node, tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
		return n.some(p, state, func(c simruntime.Container) error { return do(tx, c.ID) })
	}
}

// withPod changes a pod whose sandbox is ready, or one whose sandbox is not.
func withPod(ready bool, do func(*simruntime.Txn, string) error) applyFunc {
	return func(_ *node, tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
		if p.Sandboxes[0].Ready != ready {
			return false, nil
		}
		return true, do(tx, p.UID)
	}
}

var changes = []change{
	{"container exits", 24, (*node).exit},
	{"container is restarted", 24, (*node).restart},
	{"container is created", 5, (*node).create},
	{"created container is started", 6, withContainer(simruntime.Created, (*simruntime.Txn).StartContainer)},
	{"exited container is removed", 6, withContainer(simruntime.Exited, (*simruntime.Txn).RemoveContainer)},
	{"sandbox is replaced", 5, (*node).replaceSandbox},
	{"old sandbox is removed", 5, (*node).removeSandbox},
	{"pod is stopped", 5, withPod(true, (*simruntime.Txn).StopPod)},
	{"stopped pod is removed", 5, withPod(false, (*simruntime.Txn).RemovePod)},
	{"running pod is removed", 2, withPod(true, (*simruntime.Txn).RemovePod)},
}

// change makes one random change and returns its name, or "" if it fits no pod.
func (n *node) change() (string, error) {
	pods := n.runtime.Pods()
	if n.rng.IntN(targetPods) >= len(pods) || n.rng.IntN(14) == 0 && len(pods) < 2*targetPods {
		return "pod is added", n.add()
	}
	sum := 0
	for _, c := range changes {
		sum += c.weight
	}
	roll := n.rng.IntN(sum)
	for _, c := range changes {
		if roll -= c.weight; roll < 0 {
			return n.attempt(c, pods)
		}
	}
	panic("soak: roll above the sum of the weights")
}

// attempt applies a change to the first pod that allows it, starting at a random one.
func (n *node) attempt(c change, pods []simruntime.Pod) (string, error) {
	from := n.rng.IntN(len(pods))
	var done bool
	var err error
	n.runtime.Update(func(tx *simruntime.Txn) {
		for i := range pods {
			p := pods[(from+i)%len(pods)]
			if done, err = c.apply(n, tx, p); done || err != nil {
				if err == nil && len(p.Containers) >= maxContainers && c.weight > 5 {
					err = tx.PruneDead(p.UID)
				}
				return
			}
		}
	})
	if !done {
		return "", err
	}
	return c.name, err
}

func (n *node) add() error {
	spec := simruntime.PodSpec{Namespace: namespaces[n.rng.IntN(len(namespaces))]}
	for i := range 1 + n.rng.IntN(3) {
		spec.Containers = append(spec.Containers, simruntime.ContainerSpec{Name: fmt.Sprintf("c%d", i)})
	}
	_, err := n.runtime.AddPod(spec)
	return err
}

// some calls change with a random container of a ready pod in a state, if there is one.
func (n *node) some(p simruntime.Pod, state simruntime.State, change func(simruntime.Container) error) (bool, error) {
	var c simruntime.Container
	seen := 0
	for _, candidate := range p.Containers {
		if p.Sandboxes[0].Ready && candidate.State == state && candidate.SandboxID == p.Sandboxes[0].ID {
			if seen++; n.rng.IntN(seen) == 0 {
				c = candidate
			}
		}
	}
	if seen == 0 {
		return false, nil
	}
	return true, change(c)
}

func (n *node) exit(tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
	return n.some(p, simruntime.Running, func(c simruntime.Container) error {
		if n.rng.IntN(6) == 0 {
			return tx.ExitContainer(c.ID, 137, simruntime.ReasonOOMKilled)
		}
		return tx.ExitContainer(c.ID, int32(n.rng.IntN(3)), "")
	})
}

func (n *node) restart(tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
	return n.some(p, simruntime.Exited, func(c simruntime.Container) error {
		if _, err := tx.RestartContainer(c.ID); err != nil || n.rng.IntN(2) == 0 {
			return err
		}
		return tx.RemoveContainer(c.ID)
	})
}

func (n *node) create(tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
	if !p.Sandboxes[0].Ready || len(p.Containers) >= maxContainers {
		return false, nil
	}
	spec := simruntime.ContainerSpec{Name: fmt.Sprintf("late-%d", n.rng.IntN(1e6)), State: simruntime.Created}
	_, err := tx.AddContainer(p.UID, spec)
	return true, err
}

// replaceSandbox stops the sandbox and its containers, and adds new ones.
func (n *node) replaceSandbox(tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
	if !p.Sandboxes[0].Ready || len(p.Sandboxes) > 2 {
		return false, nil
	}
	if err := tx.StopSandbox(p.Sandboxes[0].ID); err != nil {
		return false, err
	}
	if _, err := tx.AddSandbox(p.UID); err != nil {
		return false, err
	}
	_, err := tx.AddContainer(p.UID, simruntime.ContainerSpec{Name: "c0", Attempt: uint32(len(p.Containers))})
	return true, err
}

func (n *node) removeSandbox(tx *simruntime.Txn, p simruntime.Pod) (bool, error) {
	if len(p.Sandboxes) < 2 {
		return false, nil
	}
	return true, tx.RemoveSandbox(p.Sandboxes[len(p.Sandboxes)-1].ID)
}

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
