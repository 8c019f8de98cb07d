package simruntime

import "fmt"

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
	c.after(n, c.opts.RemoveWait, pending{kind: ActionRemove, podUID: pod.UID})
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
		c.after(n, c.opts.RemoveWait, pending{kind: ActionRemove, podUID: pod.UID})
	} else {
		c.after(n, c.opts.RestartWait, pending{kind: ActionRestart, podUID: pod.UID, id: victim.ID})
	}
	return action(kind, pod, victim.ID), nil
}
