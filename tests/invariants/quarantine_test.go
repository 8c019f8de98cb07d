package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// ward is a hook of inspections that hang for as long as it is sick.
type ward struct {
	recovered chan struct{}
	deaf      bool // to the end of the context
	hung      atomic.Int64
}

func newWard(deaf bool) *ward { return &ward{recovered: make(chan struct{}), deaf: deaf} }

func (w *ward) hook(ctx context.Context, pod *pleg.Pod) (*pleg.PodStatus, error) {
	timer := time.AfterFunc(pipeline.DefaultHungAfter+1, func() { w.hung.Add(1) })
	defer func() {
		if !timer.Stop() {
			w.hung.Add(-1)
		}
	}()
	done := ctx.Done()
	if w.deaf {
		done = nil
	}
	select {
	case <-w.recovered:
		return plegtest.Status(pod), nil
	case <-done:
		return nil, ctx.Err()
	}
}

// Forty of a hundred pods hang for ever, or until the runtime recovers; the
// others change every second, and are told of as they do.
func TestHungPodsAreQuarantined(t *testing.T) {
	const inspectors, sick, well, steps = 8, 40, 60, 240
	for name, deaf := range map[string]bool{"cancelled": false, "deaf to it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer // to be read once Run has returned
				r := newRig(t, pipeline.Options{
					Inspectors: inspectors, DeliverAfterFailures: 3, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				events := r.subscribe(t, 10_000)
				w := newWard(deaf)
				told := make(map[pleg.PodUID]int)
				// late and uninspected events there are only of those that hang.
				look := func() (late int) {
					for _, ev := range drain(events) {
						told[ev.PodUID]++
						if !ev.Uninspected && time.Since(ev.ObservedAt) > 0 {
							late++
						}
					}
					return late
				}
				for n := range sick {
					uid := pleg.PodUID(fmt.Sprint("sick-", n))
					r.node.on(uid, w.hook)
					r.node.set(uid, "c=running")
				}
				r.run(t)
				time.Sleep(30 * relistPeriod)
				synctest.Wait()
				if got := len(r.Quarantined()); got < sick-inspectors/2 {
					t.Errorf("%d pods in quarantine, want %d or, without those that hang for the first time, %d", got, sick, sick-inspectors/2)
				}
				for step := range steps {
					for n := range well {
						r.node.set(pleg.PodUID(fmt.Sprint("well-", n)), fmt.Sprintf("c%d=running", step))
					}
					r.relist()
					if late := look(); late > 0 {
						t.Fatalf("step %d: %d events are late", step, late)
					}
					if got := w.hung.Load(); !deaf && got > inspectors/2 {
						t.Fatalf("step %d: %d of %d inspectors are with pods that hang", step, got, inspectors)
					}
				}
				for n := range well {
					if got := told[pleg.PodUID(fmt.Sprint("well-", n))]; got != 1+(steps-1)*3 {
						t.Errorf("%d events of a pod that is well, want %d", got, 1+(steps-1)*3)
					}
				}
				for n := range sick {
					if uid := pleg.PodUID(fmt.Sprint("sick-", n)); told[uid] != 1 {
						t.Errorf("%d events of pod %s, want one, uninspected", told[uid], uid)
					}
				}
				if _, listed := r.node.calls("sick-0"); listed != 1+30+steps {
					t.Errorf("%d lists, want one each second", listed)
				}
				if got := len(r.Quarantined()); got != sick {
					t.Errorf("%d pods in quarantine, want %d", got, sick)
				}
				asked := time.Now()
				close(w.recovered)
				if deaf { // these are tried when it is their turn
					time.Sleep(pipeline.DefaultMaxQuarantine)
				}
				time.Sleep(10 * relistPeriod)
				synctest.Wait()
				if got := r.Quarantined(); len(got) > 0 {
					t.Errorf("%d pods in quarantine although the runtime has recovered: %+v", len(got), got)
				}
				for n := range sick {
					uid := pleg.PodUID(fmt.Sprint("sick-", n))
					if status, err := r.Cache().Get(uid); err != nil || status.Container("c") == nil || !fresh(t.Context(), r.Pipeline, uid, asked) {
						t.Errorf("cache of pod %s: %+v, %v", uid, status, err)
					}
				}
				_ = r.stop()
				for what, want := range map[string]int{"pod quarantined": sick, "pod released": sick, "inspection failed": 0} {
					if got := strings.Count(log.String(), what); got != want {
						t.Errorf("%d lines with %q, want %d", got, what, want)
					}
				}
			})
		})
	}
}

// A request has a pod in quarantine tried at once, and a pod that is gone is
// told of at once.
func TestQuarantineIsLeftOnRequestOrWithThePod(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(r *rig)
		want string
	}{
		"nothing":          {do: func(*rig) {}},
		"RequestReinspect": {do: func(r *rig) { r.RequestReinspect("a") }, want: "Died(c)"},
		"RequestRelist":    {do: func(r *rig) { r.RequestRelist("a") }, want: "Died(c)"},
		"removal":          {do: func(r *rig) { r.node.remove("a") }, want: "Died(c) Removed(c)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipeline.Options{InspectTimeout: relistPeriod})
				events := r.subscribe(t, 0)
				r.node.set("a", "c=running")
				r.run(t)
				r.node.on("a", hung)
				r.node.set("a", "c=exited")
				for range 40 { // the wait is 16 s at the end, or more
					r.relist()
				}
				requireTold(t, events, "a", "Started(c)")
				r.node.on("a", nil)
				tc.do(r)
				r.relist()
				if tc.want == "" {
					requireTold(t, events)
				} else {
					requireTold(t, events, "a", tc.want)
				}
			})
		})
	}
}
