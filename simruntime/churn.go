package simruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	defaultChurnRate = 10.0 // actions/s
	defaultChurnPods = 30
	// The waits are counted in actions at the rate, so that the sequence does not
	// depend on the clock.
	restartWait = time.Second     // from a crash to the restart
	removeWait  = 2 * time.Second // from the end of a pod to its removal
)

// ActionKind is the kind of a step of [Runtime.Churn].
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
	// Rate is the number of actions per second. If zero, 10.
	Rate float64
	// Pods is the number of pods to stay around. If zero, the number at the
	// start, or 30 if there are none.
	Pods int
	// Keep are the UIDs of pods that are left alone.
	Keep []string
	// Actions ends the churn after that many. If zero, it goes on.
	Actions int
	// Observe, if set, is called after each action by the goroutine of Churn,
	// which waits for it.
	Observe func(Action)
}

func (o ChurnOptions) validate() error {
	if o.Rate < 0 || math.IsInf(o.Rate, 0) || math.IsNaN(o.Rate) {
		return fmt.Errorf("ChurnOptions.Rate is not a rate: %v", o.Rate)
	}
	return errors.Join(checkNotNegative("ChurnOptions.Pods", o.Pods), checkNotNegative("ChurnOptions.Actions", o.Actions))
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
	opts.Rate = cmp.Or(opts.Rate, defaultChurnRate)
	opts.Pods = cmp.Or(opts.Pods, len(rt.Pods()), defaultChurnPods)
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
		if err := rt.update(func(tx *Txn) (err error) {
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
	i, _ := slices.BinarySearchFunc(c.due, p.at+1, func(other pending, at int) int { return other.at - at })
	c.due = slices.Insert(c.due, i, p)
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
		if len(running(truth)) > 0 && !slices.Contains(c.opts.Keep, truth.UID) {
			live = append(live, truth)
		}
	}
	return live, ready
}

func running(p Pod) []Container {
	return slices.DeleteFunc(slices.Clone(p.Containers), func(c Container) bool { return c.State != Running })
}

func action(kind ActionKind, p Pod, containerID string) Action {
	return Action{Kind: kind, PodUID: p.UID, Namespace: p.Namespace, Name: p.Name, ContainerID: containerID}
}

// follow runs a delayed action. ErrNotFound or ErrState mean that the pod or the
// container has changed and the action is obsolete.
func (c *churn) follow(tx *Txn, p pending) (Action, error) {
	pod, ok := tx.Pod(p.podUID)
	if !ok {
		return Action{}, fmt.Errorf("pod %s: %w", p.podUID, ErrNotFound)
	}
	if p.kind == ActionRemove {
		return action(ActionRemove, pod, ""), tx.RemovePod(p.podUID)
	}
	next, err := tx.RestartContainer(p.id)
	if err != nil {
		return Action{}, err
	}
	return action(ActionRestart, pod, next.ID), tx.PruneDead(p.podUID)
}

func (c *churn) add(tx *Txn) (Action, error) {
	pod, err := tx.AddPod(drawWorkload(c.rng).podSpec(c.rng))
	return action(ActionAdd, pod, ""), err
}

// delete stops a pod; ok is false if the one drawn may not be deleted.
func (c *churn) delete(tx *Txn, n int, live []Pod) (a Action, ok bool, err error) {
	pod := live[c.rng.IntN(len(live))]
	if pod.Namespace == "kube-system" {
		return Action{}, false, nil
	}
	if err := tx.StopPod(pod.UID); err != nil {
		return Action{}, false, err
	}
	c.after(n, removeWait, pending{kind: ActionRemove, podUID: pod.UID})
	return action(ActionDelete, pod, ""), true, nil
}

// exit ends a container: a job's completes as a rule, others crash.
func (c *churn) exit(tx *Txn, n int, live []Pod) (Action, error) {
	pod := live[c.rng.IntN(len(live))]
	up := running(pod)
	victim := up[c.rng.IntN(len(up))]
	kind, code, reason := ActionCrash, int32(1+c.rng.IntN(2)), ReasonError
	switch p := c.rng.Float64(); {
	case p < 0.15:
		kind, code, reason = ActionOOM, 137, ReasonOOMKilled
	case pod.Namespace == "batch" && p < 0.9:
		kind, code, reason = ActionComplete, 0, ReasonCompleted
	}
	if err := tx.ExitContainer(victim.ID, code, reason); err != nil {
		return Action{}, err
	}
	if kind == ActionComplete {
		c.after(n, removeWait, pending{kind: ActionRemove, podUID: pod.UID})
	} else {
		c.after(n, restartWait, pending{kind: ActionRestart, podUID: pod.UID, id: victim.ID})
	}
	return action(kind, pod, victim.ID), nil
}
