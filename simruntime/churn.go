package simruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	defaultChurnRate = 10.0 // actions/s
	defaultChurnPods = 30
	// The waits are counted in actions at the rate, so that the sequence does not
	// depend on the clock.
	restartWait = time.Second     // from a crash to the restart
	removeWait  = 2 * time.Second // from the end of a pod to its removal
)

// ChurnOptions configure [Runtime.Churn].
type ChurnOptions struct {
	// Seed determines the sequence of actions. Zero is a seed like any other.
	Seed uint64
	// Rate is the number of actions per second. If zero, 10.
	Rate float64
	// Pods is the number of pods to stay around. If zero, the number at the
	// start, or 30 if there are none.
	Pods int
	// Keep are the UIDs of pods that Churn does not change.
	Keep []pleg.PodUID
	// Actions is the number of actions after which the churn ends. If zero, the churn does not end
	// by itself.
	Actions int
	// Observe, if set, is called after each action with the UID of the pod. Churn waits for it.
	Observe func(pleg.PodUID)
}

// Churn changes pods as a busy node does, until ctx ends (it returns
// context.Cause) or the number of actions is reached (nil): containers crash,
// are OOM-killed and restarted, pods come and go, jobs complete. The sequence
// depends on the seeds and on the pods at the start alone, as long as nothing
// else changes pods meanwhile. Pods in namespace kube-system are not deleted.
//
// If actions fall behind the rate, they run without a pause until they have caught up.
func (rt *Runtime) Churn(ctx context.Context, opts ChurnOptions) error {
	opts.Rate = cmp.Or(opts.Rate, defaultChurnRate)
	opts.Pods = cmp.Or(opts.Pods, len(rt.Pods()), defaultChurnPods)
	c := &churn{opts: opts, rng: newRand(opts.Seed, "churn")}
	start := time.Now()
	for n := 0; opts.Actions == 0 || n < opts.Actions; n++ {
		due := start.Add(time.Duration(float64(n+1) / opts.Rate * float64(time.Second)))
		if err := backoff.Wait(ctx, time.Until(due)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var uid pleg.PodUID
		var err error
		rt.Update(func(s *State) { uid, err = c.step(s, n) })
		if err != nil {
			return fmt.Errorf("churn: action %d: %w", n, err)
		}
		if opts.Observe != nil {
			opts.Observe(uid)
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

// pending is an action that follows from an earlier action: the restart of a container, or the
// removal of a pod.
type pending struct {
	at     int // the action is due once this number of actions is reached
	podUID pleg.PodUID
	id     pleg.ContainerID // of the container to restart, or empty
}

func (c *churn) after(n int, wait time.Duration, p pending) {
	p.at = n + max(1, int(wait.Seconds()*c.opts.Rate))
	i, _ := slices.BinarySearchFunc(c.due, p.at+1, func(other pending, at int) int { return other.at - at })
	c.due = slices.Insert(c.due, i, p)
}

// step runs action number n: a pending action that is due and still possible, or else a random one.
// It returns the UID of the pod.
func (c *churn) step(s *State, n int) (pleg.PodUID, error) {
	for len(c.due) > 0 && c.due[0].at <= n {
		p := c.due[0]
		c.due = c.due[1:]
		if err := p.run(s); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrState) {
			return p.podUID, err
		}
	}
	live, ready := c.live(s)
	switch {
	case len(live) == 0 || c.rng.Float64() < c.shortage(ready):
		return s.AddPod(drawWorkload(c.rng).podSpec(c.rng)).UID, nil
	case c.rng.Float64() < 0.35:
		if pod := c.draw(live); pod.Namespace != "kube-system" {
			c.after(n, removeWait, pending{podUID: pod.UID})
			return pod.UID, s.StopPod(pod.UID)
		}
	}
	return c.exit(s, n, c.draw(live))
}

// run returns ErrNotFound or ErrState if the pod or the container has changed and the
// action is obsolete.
func (p pending) run(s *State) error {
	if p.id == "" {
		return s.RemovePod(p.podUID)
	}
	if _, err := s.RestartContainer(p.id); err != nil {
		return err
	}
	return s.PruneDead(p.podUID)
}

func (c *churn) draw(pods []*pleg.PodStatus) *pleg.PodStatus { return pods[c.rng.IntN(len(pods))] }

// shortage is the probability that a pod is added: 1/3 at the target, more
// below it and less above it.
func (c *churn) shortage(pods int) float64 {
	target := float64(c.opts.Pods)
	return min(1, max(0, 1.0/3+2*(target-float64(pods))/target))
}

// live returns the pods with a running container, oldest first, and the number of
// pods with a ready sandbox.
func (c *churn) live(s *State) (live []*pleg.PodStatus, ready int) {
	for _, sb := range s.live() {
		if !sb.of.Ready {
			continue
		}
		ready++
		if pod := sb.pod(); len(running(pod)) > 0 && !slices.Contains(c.opts.Keep, pod.UID) {
			live = append(live, pod)
		}
	}
	return live, ready
}

func running(p *pleg.PodStatus) []*pleg.ContainerStatus {
	return slices.DeleteFunc(slices.Clone(p.Containers), func(c *pleg.ContainerStatus) bool { return c.State != pleg.StateRunning })
}

// exit ends a container: a job's completes as a rule, others crash.
func (c *churn) exit(s *State, n int, pod *pleg.PodStatus) (pleg.PodUID, error) {
	up := running(pod)
	victim := up[c.rng.IntN(len(up))]
	code, reason := int32(1+c.rng.IntN(2)), "Error"
	next, wait := pending{podUID: pod.UID, id: victim.ID}, restartWait
	switch p := c.rng.Float64(); {
	case p < 0.15:
		code, reason = killed, "OOMKilled"
	case pod.Namespace == "batch" && p < 0.9:
		code, reason = 0, "Completed"
		next.id, wait = "", removeWait
	}
	c.after(n, wait, next)
	return pod.UID, s.ExitContainer(victim.ID, code, reason)
}
