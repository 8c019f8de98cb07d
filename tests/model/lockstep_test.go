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
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	// lockstepPeriod is longer than all inspections of a list together, even if each
	// ends at its deadline.
	lockstepPeriod  = time.Minute
	lockstepTimeout = time.Second
)

// scriptedRuntime plays a script. Its step changes only when a list begins, while no
// inspection runs.
type scriptedRuntime struct {
	script script
	step   int
	// listing gets the time of each list as it begins.
	listing chan time.Time
	// contained: the caller is the pipeline, which must contain panics.
	contained bool
	request   func(pleg.PodUID)
}

func newScriptedRuntime(s script, contained bool) *scriptedRuntime {
	return &scriptedRuntime{script: s, step: -1, listing: make(chan time.Time), contained: contained}
}

func (r *scriptedRuntime) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	r.listing <- time.Now()
	r.step++
	s := r.script[r.step]
	time.Sleep(s.delay)
	return s.pods, s.fault.inject(ctx, r.contained)
}

func (r *scriptedRuntime) PodStatus(
	ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus,
) (*pleg.PodStatus, error) {
	a := r.script[r.step].answers[pod.UID]
	time.Sleep(a.delay)
	if a.request {
		r.request(pod.UID)
	}
	if err := a.fault.inject(ctx, r.contained); err != nil {
		return nil, err
	}
	if a.fault == answersNil {
		return nil, nil
	}
	return a.status, nil
}

// lockstepRun is a pipeline and a reference that play the same script.
type lockstepRun struct {
	runtime *scriptedRuntime // the pipeline's
	p       *pipeline.Pipeline
	events  <-chan pleg.Event

	script    script // the reference's
	reference *scriptedRuntime
	ref       *serial.PLEG
	refEvents chan pleg.Event

	applied time.Time // of the last list that was one
	seq     uint64
}

func newLockstepRun(t *testing.T, seed uint64, inspectors int) *lockstepRun {
	b := &lockstepRun{
		runtime:   newScriptedRuntime(newScript(seed), true),
		script:    newScript(seed),
		refEvents: make(chan pleg.Event, modelBuffer),
	}
	var err error
	b.p, err = pipeline.New(pipeline.Options{
		Runtime: b.runtime, RelistPeriod: lockstepPeriod, Inspectors: inspectors,
		ListTimeout: lockstepTimeout, InspectTimeout: lockstepTimeout,
		MaxQuarantine: 1, // the reference inspects at every list
	})
	if err != nil {
		t.Fatal(err)
	}
	b.runtime.request = b.p.RequestReinspect
	sub, err := b.p.Subscribe(pipeline.SubscribeOptions{Buffer: modelBuffer})
	if err != nil {
		t.Fatal(err)
	}
	b.events = sub.Events()
	b.reference = newScriptedRuntime(b.script, false)
	b.ref = serial.New(b.reference, b.refEvents, lockstepTimeout)
	b.reference.request = b.ref.RequestReinspect
	return b
}

// lockstep plays the script of a seed and compares after each list.
func lockstep(t *testing.T, seed uint64, inspectors int) {
	b := newLockstepRun(t, seed, inspectors)
	stop := kit.Run(t, b.p.Run)
	for i := range b.script {
		for _, uid := range b.script[i].requests {
			b.p.RequestReinspect(uid)
			b.ref.RequestReinspect(uid)
		}
		at := b.nextList(t)
		time.Sleep(lockstepPeriod / 2)
		synctest.Wait()
		if b.script[i].fault == works {
			b.applied = at
			b.reference.step = i
			b.ref.Apply(t.Context(), at, b.script[i].pods)
		}
		b.compare(t, i)
		if t.Failed() {
			break
		}
	}
	_ = stop() // kit.Run reports the error
	if rest := kit.Drain(b.events); len(rest) > 0 && !t.Failed() {
		t.Errorf("events after the end: %v", rest)
	}
}

// nextList waits for the next list, at most an hour: timers hide a deadlock from the
// bubble.
func (b *lockstepRun) nextList(t *testing.T) time.Time {
	t.Helper()
	select {
	case at := <-b.runtime.listing:
		return at
	case <-time.After(time.Hour):
		t.Fatal("no list in an hour")
		return time.Time{}
	}
}

func (b *lockstepRun) compare(t *testing.T, step int) {
	t.Helper()
	when := fmt.Sprintf("list %d", step)
	events := kit.Drain(b.events)
	for _, e := range events {
		if e.Seq <= b.seq || e.Missed != 0 {
			t.Errorf("%s: event %+v after number %d", when, e, b.seq)
		}
		b.seq = e.Seq
	}
	got, want := kit.ByPod(events), kit.ByPod(kit.Drain(b.refEvents))
	for _, uid := range kit.UIDs(scriptPods + 1) { // one is never there
		sameEvents(t, when, uid, got[uid], want[uid])
		sameStatus(t, when, uid, b.p, b.ref)
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
