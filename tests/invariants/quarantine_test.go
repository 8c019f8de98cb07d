package invariants_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// Forty of a hundred pods hang until the runtime recovers. The others change every
// second, and their events are never late.
func TestHungPodsAreQuarantined(t *testing.T) {
	for name, uncancellable := range map[string]bool{"cancelled": false, "uncancellable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { quarantine(t, uncancellable) })
		})
	}
}

func quarantine(t *testing.T, uncancellable bool) {
	const (
		inspectors, hung, good = 8, 40, 60
		timeout, maxQuarantine = 10 * time.Second, 25 * time.Second
		// warmUp is longer than four inspections: before anything has answered, the first
		// inspections of all hung pods take that long.
		warmUp, steps = 60, 40
	)
	var log kit.Log
	p := kit.New(t, pipeline.Options{Inspectors: inspectors, InspectTimeout: timeout, MaxQuarantine: maxQuarantine, Logger: log.Logger()})
	events, recovered := p.Events(t, 10_000), make(chan struct{})
	hang := plegtest.Block(recovered)
	if !uncancellable {
		hang = func(ctx context.Context) error {
			select {
			case <-recovered:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	for _, uid := range kit.UIDs(hung) {
		p.Runtime.SetPodFault(uid, hang)
		p.Runtime.Set(uid, "c=running")
	}
	p.Start(t)
	synctest.Wait()
	kit.Relist(warmUp)
	if got := len(p.Status().Quarantined); got < hung-2*inspectors {
		t.Errorf("%d pods in quarantine, want %d, except pods that hang for the first time", got, hung)
	}
	seen := make(map[pleg.PodUID]int) // events
	for n := range steps {
		for i := range good {
			p.Runtime.Set(pleg.PodUID(fmt.Sprint("good-", i)), fmt.Sprintf("c%d=running", n))
		}
		kit.Relist(1)
		for _, ev := range kit.Drain(events) {
			seen[ev.PodUID]++
			if time.Since(ev.ObservedAt) > 0 {
				t.Fatalf("step %d: late event %+v", n, ev)
			}
		}
		if got := p.Runtime.Counts().InFlight; !uncancellable && got > 2*inspectors {
			t.Fatalf("step %d: %d inspections in flight, want at most %d", n, got, 2*inspectors)
		}
	}
	for uid, got := range seen {
		if want := 1 + (steps-1)*3; got != want {
			t.Errorf("pod %s has %d events, want %d", uid, got, want)
		}
	}
	if lists := p.Runtime.Counts().Lists; len(seen) != good || lists != 1+warmUp+steps {
		t.Errorf("events of %d pods, want events of the pods that do not hang, and %d lists, want one each second", len(seen), lists)
	}
	if got := len(p.Status().Quarantined); got != hung {
		t.Errorf("%d pods in quarantine, want %d", got, hung)
	}
	asked := time.Now()
	close(recovered)
	if uncancellable { // each pod is tried when its wait ends
		time.Sleep(maxQuarantine)
	}
	kit.Relist(10)
	if got := p.Status().Quarantined; len(got) > 0 {
		t.Errorf("%d pods in quarantine after the runtime recovered: %+v", len(got), got)
	}
	for _, uid := range kit.UIDs(hung) {
		if status, err := p.Cache().Get(uid); err != nil || status.Container("c") == nil || !promises.Fresh(p.Cache(), uid, asked) {
			t.Errorf("cache of pod %s: %+v, %v", uid, status, err)
		}
	}
	_ = p.Stop()
	log.RequireLines(t, hung, "pod quarantined")
	log.RequireLines(t, hung, "pod released")
	log.RequireLines(t, 0, "inspection failed")
}
