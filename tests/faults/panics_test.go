package faults_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime/schedule"
)

// embedded is a runtime of an embedder, whose methods panic as a schedule says.
// Its WatchEvents does so in the midst of the stream, at an event.
type embedded struct {
	*cri.Client
	end time.Duration // of the schedule

	mu     sync.Mutex
	start  time.Time
	faults []*panicking
	hits   int
}

type panicking struct {
	schedule.Fault
	matched, hit int
	rng          *rand.Rand
}

func newEmbedded(client *cri.Client, s *schedule.Schedule) *embedded {
	e := &embedded{Client: client, end: s.End(), start: time.Now()}
	for _, f := range s.Faults {
		if f.Kind == schedule.Panic {
			e.faults = append(e.faults, &panicking{Fault: f, rng: rand.New(rand.NewPCG(f.Seed, 1))})
		}
	}
	return e
}

func (e *embedded) may(call string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Since(e.start)
	for _, f := range e.faults {
		if f.Call == call && f.hits(now, e.end) {
			e.hits++
			panic("a fault of the schedule: " + f.String())
		}
	}
}

func (f *panicking) hits(now, end time.Duration) bool {
	if f.Until > 0 {
		end = time.Duration(f.Until)
	}
	if now < time.Duration(f.From) || now >= end || f.Times > 0 && f.hit == f.Times {
		return false
	}
	if f.matched++; f.matched <= f.After || f.Probability > 0 && f.rng.Float64() >= f.Probability {
		return false
	}
	f.hit++
	return true
}

func (e *embedded) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	e.may("ListPods")
	return e.Client.ListPods(ctx)
}

func (e *embedded) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	e.may("PodStatus")
	return e.Client.PodStatus(ctx, pod, last)
}

func (e *embedded) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	e.may("ListPod")
	return e.Client.ListPod(ctx, uid)
}

func (e *embedded) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	return e.Client.WatchEvents(ctx, opened, func(h pleg.Hint) {
		e.may("WatchEvents")
		hint(h)
	})
}
