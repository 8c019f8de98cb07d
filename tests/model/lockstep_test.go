package model_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	// lockstepPeriod is longer than all inspections of a list together, even if each
	// ends at its deadline.
	lockstepPeriod  = time.Minute
	lockstepTimeout = time.Second
)

// play makes a runtime answer as the step says. A caller that is contained gets its panics.
func (s scriptStep) play(rt *plegtest.Runtime, contained bool, request func(pleg.PodUID), listing func()) {
	rt.SetList(s.pods)
	rt.SetListFault(func(ctx context.Context) error {
		listing()
		time.Sleep(s.delay)
		return s.fault.inject(ctx, contained)
	})
	for uid, a := range s.answers {
		rt.SetStatus(uid, a.status)
		rt.SetPodFault(uid, func(ctx context.Context) error {
			time.Sleep(a.delay)
			if a.request {
				request(uid)
			}
			return a.fault.inject(ctx, contained)
		})
	}
}

// lockstepRun is a pipeline and a reference that play the same script.
type lockstepRun struct {
	p         *kit.Pipeline
	events    <-chan pleg.Event
	ref       *serial.PLEG
	refEvents chan pleg.Event

	listed  time.Time // when the last list began
	applied time.Time // of the last list that was one
	seq     uint64
}

// lockstep plays the script of a seed and compares after each list. Each step begins in the
// middle between two lists.
func lockstep(t *testing.T, seed uint64, inspectors int) {
	b := &lockstepRun{refEvents: make(chan pleg.Event, modelBuffer), listed: time.Now().Add(-lockstepPeriod)}
	b.p = kit.New(t, pipeline.Options{
		OmitInferredStarts: true,
		RelistPeriod:       lockstepPeriod, Inspectors: inspectors, ListTimeout: lockstepTimeout, InspectTimeout: lockstepTimeout,
		MaxQuarantine: 1, // the reference inspects at every list
	})
	b.events = b.p.Events(t, modelBuffer)
	rt := plegtest.New()
	b.ref = serial.New(rt, b.refEvents, lockstepTimeout)
	script := newScript(seed)
	for i, step := range newScript(seed) {
		before := b.listed
		step.play(b.p.Runtime, true, b.p.RequestReinspect, func() { b.listed = time.Now() })
		script[i].play(rt, false, b.ref.RequestReinspect, nil)
		for _, uid := range step.requests {
			b.p.RequestReinspect(uid)
			b.ref.RequestReinspect(uid)
		}
		if i == 0 {
			b.p.Start(t)
		}
		time.Sleep(time.Until(before.Add(lockstepPeriod + lockstepPeriod/2)))
		synctest.Wait()
		if b.listed.Equal(before) {
			t.Fatalf("list %d has not begun", i)
		}
		if step.fault == works {
			b.applied = b.listed
			b.ref.Apply(t.Context(), b.applied, script[i].pods)
		}
		b.compare(t, i)
		if t.Failed() {
			break
		}
	}
	_ = b.p.Stop() // kit.Run reports the error
	if rest := kit.Drain(b.events); len(rest) > 0 && !t.Failed() {
		t.Errorf("events after the end: %v", rest)
	}
}

func (b *lockstepRun) compare(t *testing.T, step int) {
	t.Helper()
	when := fmt.Sprintf("list %d", step)
	events := kit.Drain(b.events)
	for i, e := range events {
		if e.Seq <= b.seq || e.Missed != 0 {
			t.Errorf("%s: event %+v after number %d", when, e, b.seq)
		}
		b.seq = e.Seq
		events[i].Replayed = false // the reference does not mark the first state
	}
	got, want := kit.ByPod(events), kit.ByPod(kit.Drain(b.refEvents))
	for _, uid := range kit.UIDs(scriptPods + 1) { // one is never there
		sameEvents(t, when, uid, got[uid], want[uid])
		sameStatus(t, when, uid, b.p.Pipeline, b.ref)
		if b.applied.IsZero() {
			continue
		}
		if before := b.applied.Add(-1); !promises.Fresh(b.p.Cache(), uid, before) {
			t.Errorf("%s: pod %s is not as new as the list that has settled", when, uid)
		}
		if promises.Fresh(b.p.Cache(), uid, b.applied) {
			t.Errorf("%s: pod %s claims to be newer than the last list", when, uid)
		}
	}
}
