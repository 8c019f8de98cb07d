// Package model_test compares the pipeline with the serial reference of bench/serial:
// for the same random sequences both must have the same events and statuses of each
// pod. A sequence depends only on its seed.
package model_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// The number of seeds is small here; "make faults" runs many.
var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed only (0: many)")
	modelSeeds = flag.Uint64("model.seeds", 25, "number of seeds of each variant of the model test")
)

// TestModelLockstep lets everything settle before the next list: the pipeline must equal
// the reference after every list, with few and with many inspectors.
func TestModelLockstep(t *testing.T) {
	for _, inspectors := range []int{1, 2, 16} {
		t.Run(fmt.Sprintf("inspectors=%d", inspectors), func(t *testing.T) {
			t.Parallel()
			first, last := uint64(1), *modelSeeds
			if *modelSeed != 0 {
				first, last = *modelSeed, *modelSeed
			}
			for seed := first; seed <= last && !t.Failed(); seed++ {
				if testing.Verbose() {
					t.Logf("seed %d", seed) // known even if the pipeline crashes
				}
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("replay: go test -run '^%s$' ./tests/model -model.seed=%d", t.Name(), seed)
						}
					}()
					lockstep(t, seed, inspectors)
				})
			}
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modelBuffer has room for all events between two comparisons: none is discarded.
const modelBuffer = 500

var (
	errScripted = errors.New("scripted error")
	errPanicked = errors.New("the runtime panicked")
)

// sameEvents compares events, but not their numbers. The pipeline may know how a container
// ended that was removed before its inspection.
func sameEvents(t *testing.T, when string, uid pleg.PodUID, got, want []pleg.Event) {
	t.Helper()
	same := func(a, b pleg.Event) bool {
		a.Seq, a.Epoch = b.Seq, b.Epoch
		if a.Type == pleg.ContainerDied && a.ExitCode != nil && b.ExitCode == nil && b.Image == "" {
			b.ExitCode, b.Reason, b.Image, b.StartedAt, b.FinishedAt = a.ExitCode, a.Reason, a.Image, a.StartedAt, a.FinishedAt
		}
		return promises.Equal(a, b)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: events of pod %s: %s\n\treference: %s\n\tin full: %+v\n\treference: %+v",
			when, uid, plegtest.Words(got...), plegtest.Words(want...), got, want)
	}
}

// sameStatus compares what both caches hold of a pod.
func sameStatus(t *testing.T, when string, uid pleg.PodUID, p *pipeline.Pipeline, ref *serial.PLEG) {
	t.Helper()
	got, gotErr := p.Cache().Get(uid)
	got, gotErr = asReference(uid, got, gotErr)
	want, wantErr := ref.Status(uid)
	if kind(gotErr) != kind(wantErr) {
		t.Errorf("%s: cached error of pod %s: pipeline %v, reference %v", when, uid, gotErr, wantErr)
		return
	}
	if got, want := fixedTime(got), fixedTime(want); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: cached status of pod %s\n\tpipeline:  %+v\n\treference: %+v", when, uid, got, want)
	}
}

// asReference returns the status and error of a pod as the reference has them: of a pod that is
// gone, or is back and not inspected yet, it has a status with only the UID.
func asReference(uid pleg.PodUID, s *pleg.PodStatus, err error) (*pleg.PodStatus, error) {
	if errors.Is(err, pleg.ErrUnknownPod) || errors.Is(err, pleg.ErrNotSynced) || errors.Is(err, cache.ErrNotInspected) {
		return &pleg.PodStatus{UID: uid}, nil
	}
	return s, err
}

// fixedTime returns the status with a time that reflect.DeepEqual can compare.
func fixedTime(s *pleg.PodStatus) *pleg.PodStatus {
	if s == nil {
		return nil
	}
	fixed := *s
	fixed.ObservedAt = s.ObservedAt.Round(0).UTC()
	return &fixed
}

func kind(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, errScripted):
		return "scripted"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	default:
		return "other"
	}
}

const (
	// lockstepPeriod is longer than all inspections of a list together, even if each
	// ends at its deadline.
	lockstepPeriod  = time.Minute
	lockstepTimeout = time.Second
)

// play makes a runtime answer as the step says.
func (s scriptStep) play(rt *plegtest.Runtime, request func(pleg.PodUID), listing func()) {
	rt.SetList(s.pods)
	rt.SetListFault(func(ctx context.Context) error {
		listing()
		time.Sleep(s.delay)
		return s.fault(ctx)
	})
	for uid, a := range s.answers {
		rt.SetStatus(uid, a.status)
		rt.SetPodFault(uid, func(ctx context.Context) error {
			time.Sleep(a.delay)
			if a.request {
				request(uid)
			}
			return a.fault(ctx)
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
		KubeletEvents: true,
		RelistPeriod:  lockstepPeriod, Inspectors: inspectors, ListTimeout: lockstepTimeout, InspectTimeout: lockstepTimeout,
		MaxQuarantine: 1, // the reference inspects at every list
	})
	b.events = b.p.Events(t, modelBuffer)
	rt := plegtest.New()
	b.ref = serial.New(rt, b.refEvents, lockstepTimeout)
	script := newScript(seed, false)
	for i, step := range newScript(seed, true) {
		before := b.listed
		step.play(b.p.Runtime, b.p.RequestReinspect, func() { b.listed = time.Now() })
		script[i].play(rt, b.ref.RequestReinspect, nil)
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
		if step.works {
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
