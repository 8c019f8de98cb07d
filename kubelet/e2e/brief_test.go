//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"time"
)

// shortLived makes pods that end after 5 s: many at once, then one each second.
func (tr *trial) shortLived(ctx context.Context) {
	before, began := tr.usage(), time.Now()
	all := make(briefPods)
	for i := range brief {
		tr.addBrief(all, fmt.Sprintf("brief-%02d", i))
	}
	tr.followBrief(ctx, all, func() bool { return all.ended() == brief })
	tr.share(fmt.Sprintf("%d pods that live 5 s", brief), before, time.Since(began))
	tr.reportBrief(fmt.Sprintf("%d pods that live 5 s", brief), all)

	before, began = tr.usage(), time.Now()
	all, d := make(briefPods), span(tr.t)
	tr.followBrief(ctx, all, func() bool {
		if passed := time.Since(began); passed < d && len(all) < int(passed.Seconds()) {
			tr.addBrief(all, fmt.Sprintf("brief-%d", brief+len(all)))
		}
		return time.Since(began) >= d && all.ended() == len(all)
	})
	tr.share("one such pod each second", before, time.Since(began))
	tr.reportBrief("one such pod each second", all)
}

// briefPod is when a pod was made, and when the kubelet reported that it runs, and its end.
type briefPod struct{ made, ran, ended time.Time }

type briefPods map[string]*briefPod

func (b briefPods) ended() (n int) {
	for _, p := range b {
		if !p.ended.IsZero() {
			n++
		}
	}
	return n
}

func (tr *trial) addBrief(all briefPods, name string) {
	all[name] = &briefPod{made: time.Now()}
	tr.k.addPod(name, "Never", `"exit", "0", "5s"`)
}

// followBrief notes what the kubelet reports until done, and removes pods that have ended.
func (tr *trial) followBrief(ctx context.Context, all briefPods, done func() bool) {
	for began := time.Now(); !done(); pause(ctx, 50*time.Millisecond) {
		if ctx.Err() != nil || time.Since(began) > span(tr.t)+waitTimeout {
			tr.t.Fatalf("%d of %d pods that live 5 s have ended", all.ended(), len(all))
		}
		for name, status := range tr.k.statuses(ctx) {
			if p := all[name]; p != nil {
				tr.noteBrief(name, p, status)
			}
		}
	}
}

func (tr *trial) noteBrief(name string, p *briefPod, status podStatus) {
	if status.Phase == "Running" && p.ran.IsZero() {
		p.ran = time.Now()
	}
	if status.Phase == "Succeeded" && p.ended.IsZero() {
		p.ended = time.Now()
		tr.k.removePod(name)
	}
	for _, c := range status.ContainerStatuses {
		if c.RestartCount > 0 {
			tr.t.Errorf("%s was started %d times", name, c.RestartCount+1)
		}
	}
}

func (tr *trial) reportBrief(what string, all briefPods) {
	unseen := 0.0
	for _, p := range all {
		if p.ran.IsZero() {
			unseen++
			continue
		}
		tr.add(what+": reported Running after (ms)", milliseconds(p.ran.Sub(p.made)))
	}
	tr.add(what+": never reported Running", unseen)
}
