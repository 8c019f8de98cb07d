//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// briefTimeout bounds the life of short-lived pods.
const briefTimeout = 10 * time.Minute

// shortLived makes pods that end after 5 s: 60 at once, then one a second.
func (tr *trial) shortLived(ctx context.Context) {
	tr.makeBrief(ctx, "60 pods that live 5 s", 60, 0)
	tr.makeBrief(ctx, "one such pod a second", int(span(tr.t).Seconds()), time.Second)
}

// briefPod contains when a pod was made, and the kubelet's reports.
type briefPod struct {
	made       time.Time
	ran, ended bool
}

// makeBrief makes n pods, each a period after the previous pod, and removes those that have ended. A
// pod is started again only if its first start failed.
func (tr *trial) makeBrief(ctx context.Context, what string, n int, period time.Duration) {
	before, began := tr.usage(), time.Now()
	all := make(map[string]*briefPod)
	ended, unseen, restarts := 0, 0, 0
	for ended < n {
		for len(all) < n && time.Since(began) >= time.Duration(len(all))*period {
			name := fmt.Sprintf("brief-%d", tr.briefs) // a pod of the same name would wait for the end of the first
			tr.briefs++
			all[name] = &briefPod{made: time.Now()}
			tr.k.addPod(name, "Never", `"exit", "0", "5s"`)
		}
		asked := time.Now()
		for name, status := range tr.k.statuses(ctx) {
			p := all[name]
			if p == nil || p.ended {
				continue
			}
			if status.Phase == corev1.PodRunning && !p.ran {
				p.ran = true
				tr.add(what+": reported Running after (ms)", milliseconds(time.Since(p.made)))
			}
			if status.Phase == corev1.PodSucceeded {
				p.ended = true
				ended++
				if !p.ran {
					unseen++
				}
				for _, c := range status.ContainerStatuses {
					restarts += int(c.RestartCount)
				}
				tr.k.removePod(name)
			}
		}
		pause(ctx, max(50*time.Millisecond, 9*time.Since(asked))) // no more than a tenth of the time goes into reports
		if ctx.Err() != nil || time.Since(began) > span(tr.t)+briefTimeout {
			tr.t.Fatalf("%s: %d of %d have ended", what, ended, n)
		}
	}
	tr.share(what, before, time.Since(began))
	tr.add(what+": never reported Running", float64(unseen))
	tr.add(what+": restarts", float64(restarts))
	await(ctx, tr.t, "removal of pods that have ended", time.Second, func() bool { return len(tr.k.statuses(ctx)) <= pods })
}
