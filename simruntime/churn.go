package simruntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Defaults of [ChurnOptions].
const (
	DefaultChurnRate   = 10.0 // actions/s
	DefaultChurnPods   = 30
	DefaultRestartWait = time.Second
	DefaultRemoveWait  = 2 * time.Second
)

// ActionKind is what a step of [Runtime.Churn] does.
type ActionKind string

// The actions. Each but ActionAdd is about a pod chosen at random.
const (
	ActionAdd      ActionKind = "add"      // A pod appears and runs.
	ActionDelete   ActionKind = "delete"   // A pod is stopped, to be removed later.
	ActionRemove   ActionKind = "remove"   // A stopped pod is removed.
	ActionCrash    ActionKind = "crash"    // A container exits with an error.
	ActionOOM      ActionKind = "oom"      // A container is OOM-killed.
	ActionComplete ActionKind = "complete" // A job's container exits with 0.
	ActionRestart  ActionKind = "restart"  // A container that crashed is restarted.
)

// Action is one step of [Runtime.Churn].
type Action struct {
	Kind        ActionKind
	PodUID      string
	Namespace   string
	Name        string // Of the pod.
	ContainerID string // The one that exits, or the new one of a restart.
}

// ChurnOptions configure [Runtime.Churn].
type ChurnOptions struct {
	// Seed determines the sequence of actions. Zero is a seed like any other.
	Seed uint64
	// Rate is the number of actions per second. If zero, DefaultChurnRate.
	Rate float64
	// Pods is the number of pods to stay around. If zero, the number at the
	// start, or DefaultChurnPods if there are none.
	Pods int
	// Actions ends the churn after that many. If zero, it goes on.
	Actions int
	// RestartWait is the time from a crash to the restart. If zero,
	// DefaultRestartWait. Like RemoveWait it is counted in actions at Rate, so
	// that the sequence does not depend on the clock.
	RestartWait time.Duration
	// RemoveWait is the time from the end of a pod to its removal. If zero,
	// DefaultRemoveWait.
	RemoveWait time.Duration
	// Observe, if set, is called after each action by the goroutine of Churn,
	// which waits for it.
	Observe func(Action)
}

func (o ChurnOptions) validate() error {
	switch {
	case o.Rate < 0 || math.IsInf(o.Rate, 0) || math.IsNaN(o.Rate):
		return fmt.Errorf("ChurnOptions.Rate is not a rate: %v", o.Rate)
	case o.Pods < 0:
		return fmt.Errorf("ChurnOptions.Pods is negative: %d", o.Pods)
	case o.Actions < 0:
		return fmt.Errorf("ChurnOptions.Actions is negative: %d", o.Actions)
	case o.RestartWait < 0:
		return fmt.Errorf("ChurnOptions.RestartWait is negative: %v", o.RestartWait)
	case o.RemoveWait < 0:
		return fmt.Errorf("ChurnOptions.RemoveWait is negative: %v", o.RemoveWait)
	}
	return nil
}

func (o ChurnOptions) withDefaults(pods int) ChurnOptions {
	if o.Rate == 0 {
		o.Rate = DefaultChurnRate
	}
	if o.Pods == 0 {
		o.Pods = pods
	}
	if o.Pods == 0 {
		o.Pods = DefaultChurnPods
	}
	if o.RestartWait == 0 {
		o.RestartWait = DefaultRestartWait
	}
	if o.RemoveWait == 0 {
		o.RemoveWait = DefaultRemoveWait
	}
	return o
}

// Churn changes pods as a busy node does, until ctx ends (it returns
// context.Cause) or the number of actions is reached (nil): containers crash,
// are OOM-killed and restarted, pods come and go, jobs complete. The sequence
// depends on the seeds and on the pods at the start alone, as long as nothing
// else changes pods meanwhile. Pods in namespace kube-system are not deleted.
//
// If actions fall behind the rate, they run without a pause until they have caught up.
func (rt *Runtime) Churn(ctx context.Context, opts ChurnOptions) error {
	if err := opts.validate(); err != nil {
		return fmt.Errorf("simruntime: %w", err)
	}
	opts = opts.withDefaults(len(rt.Pods()))
	c := &churn{opts: opts, rng: newRand(opts.Seed, "churn")}
	start := time.Now()
	for n := 0; opts.Actions == 0 || n < opts.Actions; n++ {
		due := start.Add(time.Duration(float64(n+1) / opts.Rate * float64(time.Second)))
		if err := sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var done Action
		if _, err := rt.update(func(tx *Txn) (err error) {
			done, err = c.step(tx, n)
			return err
		}); err != nil {
			return fmt.Errorf("churn: action %d: %w", n, err)
		}
		if opts.Observe != nil {
			opts.Observe(done)
		}
	}
	return nil
}

// churn is the state of one Churn; only its goroutine uses it.
type churn struct {
	opts ChurnOptions
	rng  *rand.Rand
	due  []pending // in order of at
}

// pending is an action that follows from an earlier one.
type pending struct {
	at     int // number of the action from which on it is due
	kind   ActionKind
	podUID string
	id     string // of the container to restart
}

func (c *churn) after(n int, wait time.Duration, p pending) {
	p.at = n + max(1, int(wait.Seconds()*c.opts.Rate))
	i := len(c.due)
	for i > 0 && c.due[i-1].at > p.at {
		i--
	}
	c.due = append(c.due[:i], append([]pending{p}, c.due[i:]...)...)
}

// step runs action number n: one that is due and still possible, or else a random
// one.
func (c *churn) step(tx *Txn, n int) (Action, error) {
	for len(c.due) > 0 && c.due[0].at <= n {
		p := c.due[0]
		c.due = c.due[1:]
		a, err := c.follow(tx, p)
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrState) {
			return a, err
		}
	}
	live, ready := c.live(tx)
	switch {
	case len(live) == 0 || c.rng.Float64() < c.shortage(ready):
		return c.add(tx)
	case c.rng.Float64() < 0.35:
		if a, ok, err := c.delete(tx, n, live); ok || err != nil {
			return a, err
		}
	}
	return c.exit(tx, n, live)
}

// shortage is the probability that a pod is added: 1/3 at the target, more
// below it and less above it.
func (c *churn) shortage(pods int) float64 {
	target := float64(c.opts.Pods)
	return min(1, max(0, 1.0/3+2*(target-float64(pods))/target))
}

// live returns the pods with a running container, oldest first, and the number of
// pods with a ready sandbox.
func (c *churn) live(tx *Txn) (live []Pod, ready int) {
	for _, p := range tx.s.podOrder {
		truth, ok := p.truth()
		if !ok || !truth.Sandboxes[0].Ready {
			continue
		}
		ready++
		if len(running(truth)) > 0 {
			live = append(live, truth)
		}
	}
	return live, ready
}

func running(p Pod) []Container {
	var out []Container
	for _, c := range p.Containers {
		if c.State == Running {
			out = append(out, c)
		}
	}
	return out
}

func action(kind ActionKind, p Pod, containerID string) Action {
	return Action{Kind: kind, PodUID: p.UID, Namespace: p.Namespace, Name: p.Name, ContainerID: containerID}
}
