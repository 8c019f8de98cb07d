//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"time"
)

// briefTimeout bounds the life of short-lived pods.
const briefTimeout = 10 * time.Minute

// shortLived makes pods that end after 5 s: 60 at once, then one a second.
func (tr *trial) shortLived(ctx context.Context) { tr.makeBriefs(ctx, 60, 1) }

// makeBriefs makes pods: some at once, then a number each second.
func (tr *trial) makeBriefs(ctx context.Context, atOnce int, rate float64) {
	tr.makeBrief(ctx, fmt.Sprintf("%d pods that live 5 s", atOnce), atOnce, func(time.Duration) int { return atOnce })
	n := int(rate * span(tr.t).Seconds())
	tr.makeBrief(ctx, fmt.Sprintf("%v such pods a second", rate), n, func(passed time.Duration) int {
		return min(n, 1+int(rate*passed.Seconds()))
	})
}

// makeBrief makes n pods. At each time, due is the number of pods that should exist.
func (tr *trial) makeBrief(ctx context.Context, what string, n int, due func(passed time.Duration) int) {
	before, began := tr.usage(), time.Now()
	all := make(briefPods)
	for all.ended() < n {
		for len(all) < due(time.Since(began)) {
			tr.addBrief(all)
		}
		tr.noteBrief(ctx, all)
		if ctx.Err() != nil || time.Since(began) > span(tr.t)+briefTimeout {
			tr.t.Fatalf("%s: %d of %d have ended", what, all.ended(), n)
		}
	}
	tr.share(what, before, time.Since(began))
	unseen, restarts := 0.0, 0
	for _, p := range all {
		restarts += p.restarts
		if p.ran.IsZero() {
			unseen++
			continue
		}
		tr.add(what+": reported Running after (ms)", milliseconds(p.ran.Sub(p.made)))
	}
	tr.add(what+": never reported Running", unseen)
	tr.add(what+": restarts", float64(restarts))
	await(ctx, tr.t, "removal of pods that have ended", time.Second, func() bool { return len(tr.k.statuses(ctx)) <= pods })
}

// briefPod is when a pod was made, and when the kubelet reported that it runs, and its end.
// A pod is started again only if its first start failed.
type briefPod struct {
	made, ran, ended time.Time
	restarts         int
}

type briefPods map[string]*briefPod

func (b briefPods) ended() (n int) {
	for _, p := range b {
		if !p.ended.IsZero() {
			n++
		}
	}
	return n
}

func (tr *trial) addBrief(all briefPods) {
	name := fmt.Sprintf("brief-%d", tr.briefs) // a pod of the same name would wait for the end of the first
	tr.briefs++
	all[name] = &briefPod{made: time.Now()}
	tr.k.addPod(name, "Never", `"exit", "0", "5s"`)
}

// noteBrief notes what the kubelet reports, removes pods that have ended, and pauses, so
// that no more than a tenth of the time goes into reports.
func (tr *trial) noteBrief(ctx context.Context, all briefPods) {
	began := time.Now()
	for name, status := range tr.k.statuses(ctx) {
		p := all[name]
		if p == nil {
			continue
		}
		if status.Phase == "Running" && p.ran.IsZero() {
			p.ran = time.Now()
		}
		if status.Phase == "Succeeded" && p.ended.IsZero() {
			p.ended = time.Now()
			tr.k.removePod(name)
		}
		for _, c := range status.ContainerStatuses {
			p.restarts = max(p.restarts, c.RestartCount)
		}
	}
	pause(ctx, max(50*time.Millisecond, 9*time.Since(began)))
}
