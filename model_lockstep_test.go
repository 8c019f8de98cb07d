package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lockstepPeriod is longer than all inspections of a list together, were
	// each to end at its deadline.
	lockstepPeriod  = time.Minute
	lockstepTimeout = time.Second
)

// scriptedRuntime plays a script. The step it is at only changes when a list
// begins, and no inspection runs then.
type scriptedRuntime struct {
	script script
	step   int
	// listing gets the time of each list as it begins.
	listing chan time.Time
	// contained is true for the pipeline, which has to survive panics.
	contained bool
	request   func(pleg.PodUID)
}

func (r *scriptedRuntime) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	r.listing <- time.Now()
	r.step++
	s := r.script[r.step]
	time.Sleep(s.delay)
	return s.pods, s.fault.happen(ctx, r.contained)
}

func (r *scriptedRuntime) PodStatus(
	ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus,
) (*pleg.PodStatus, error) {
	if last != nil && last.UID != pod.UID {
		return nil, fmt.Errorf("pod %s is inspected with the last status of pod %s", pod.UID, last.UID)
	}
	a := r.script[r.step].answers[pod.UID]
	time.Sleep(a.delay)
	if a.request {
		r.request(pod.UID)
	}
	if err := a.fault.happen(ctx, r.contained); err != nil {
		return nil, err
	}
	if a.fault == answersNil {
		return nil, nil
	}
	return a.status, nil
}

// lockstepBed is a pipeline and a reference that play the same script.
type lockstepBed struct {
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

func newLockstepBed(t *testing.T, seed uint64, inspectors int) *lockstepBed {
	b := &lockstepBed{
		runtime:   &scriptedRuntime{script: newScript(seed), step: -1, listing: make(chan time.Time), contained: true},
		script:    newScript(seed),
		refEvents: make(chan pleg.Event, modelBuffer),
	}
	var err error
	b.p, err = pipeline.New(pipeline.Options{
		Runtime: b.runtime, RelistPeriod: lockstepPeriod, Inspectors: inspectors,
		ListTimeout: lockstepTimeout, InspectTimeout: lockstepTimeout,
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
	b.reference = &scriptedRuntime{script: b.script}
	b.ref, err = serial.New(b.reference, serial.Options{Events: b.refEvents, InspectTimeout: lockstepTimeout})
	if err != nil {
		t.Fatal(err)
	}
	b.reference.request = b.ref.RequestReinspect
	return b
}

// lockstep plays the script of a seed and compares after each list.
func lockstep(t *testing.T, seed uint64, inspectors int) {
	b := newLockstepBed(t, seed, inspectors)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.p.Run(ctx) }()
	for i := range b.script {
		for _, uid := range b.script[i].requests {
			b.p.RequestReinspect(uid)
			b.ref.RequestReinspect(uid)
		}
		at := <-b.runtime.listing
		time.Sleep(lockstepPeriod / 2)
		synctest.Wait()
		if b.script[i].fault == works {
			b.applied = at
			b.reference.step = i
			// On a goroutine's time of its own: the pipeline's next list waits.
			b.ref.Apply(ctx, at, b.script[i].pods)
		}
		b.compare(t, i)
		if t.Failed() {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
	if rest := drain(b.events); len(rest) > 0 && !t.Failed() {
		t.Errorf("events after the end: %v", rest)
	}
}

func (b *lockstepBed) compare(t *testing.T, step int) {
	t.Helper()
	when := fmt.Sprintf("list %d", step)
	events := drain(b.events)
	for _, e := range events {
		if e.Seq <= b.seq || e.Missed != 0 {
			t.Errorf("%s: event %+v after number %d", when, e, b.seq)
		}
		b.seq = e.Seq
	}
	got, want := byPod(events), byPod(drain(b.refEvents))
	for _, uid := range podUIDs(scriptPods + 1) { // one is never there
		sameEvents(t, when, uid, got[uid], want[uid])
		sameStatus(t, when, uid, b.p, b.ref)
		if b.applied.IsZero() {
			continue
		}
		if before := b.applied.Add(-1); !fresh(t.Context(), b.p, uid, before) {
			t.Errorf("%s: pod %s is not as new as the list that has settled", when, uid)
		}
		if fresh(t.Context(), b.p, uid, b.applied) {
			t.Errorf("%s: pod %s claims to be newer than the last list", when, uid)
		}
	}
}
