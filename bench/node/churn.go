package main

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

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
		if !sleepUntil(ctx, due) {
			return answer, context.Cause(ctx)
		}
		id, err := n.replace(pods[i%len(pods)].UID)
		if err != nil {
			return answer, err
		}
		answer.Log = append(answer.Log, control.Arrival{
			Type: "ContainerStarted", ID: id, UnixNS: time.Now().UnixNano(),
		})
	}
	answer.Changed = total
	return answer, nil
}

func sleepUntil(ctx context.Context, due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
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
