package faults_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// scenario describes the changes and faults of a simulated runtime. The seed determines the pods
// and their changes.
type scenario struct {
	seed       uint64
	pods       int
	containers int
	rate       int           // changes in a second
	churn      time.Duration // churnEnd if zero
	faults     []row
	mode       pipeline.EventsMode
	alone      bool // no subscribers come and go
}

// modes are how the pipeline learns of changes.
var modes = []pipeline.EventsMode{pipeline.EventsOff, pipeline.EventsAuto}

const (
	relistThreshold = 3 * time.Second
	listTimeout     = 2 * time.Second
	inspectTimeout  = 3 * time.Second
	churnEnd        = 12 * time.Second
	churnEndOfOnce  = 6 * time.Second // of a fault that hits once
)

// fixture is a pipeline on a simulated runtime.
type fixture struct {
	*kit.Simulation
	t        *testing.T
	scenario scenario
	start    time.Time
	waits    sync.WaitGroup
	audience *audience
}

func newFixture(t *testing.T, s scenario) *fixture {
	t.Helper()
	node := simruntime.New(simruntime.Options{Seed: s.seed})
	node.Populate(simruntime.Population{Pods: s.pods, Containers: s.containers})
	f := &fixture{t: t, scenario: s, start: time.Now()}
	f.Simulation = kit.Simulate(t, node, pipeline.Options{
		// No relist at the moment of a change: if two observations have the same time,
		// neither is newer.
		RelistPeriod: time.Second + time.Millisecond,
		Events:       s.mode, RelistThreshold: relistThreshold,
		ListTimeout: listTimeout, InspectTimeout: inspectTimeout, History: logLength,
	}, cri.Options{ListTimeout: listTimeout, StatusTimeout: inspectTimeout, ConnectTimeout: time.Second})
	f.audience = newAudience(f)
	return f
}

// wait waits for a status of the pod that is newer than its last change. Its containers must be at
// least as far in their lives as at the call, or the inspection must have failed.
func (f *fixture) wait(uid pleg.PodUID) {
	f.waits.Go(func() {
		time.Sleep(time.Millisecond) // the clock of the test stands still during a change
		now, called := f.Truth()[uid].Containers, time.Since(f.start)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		status, err := f.Cache().GetNewerThan(ctx, uid, time.Now())
		if ctx.Err() != nil {
			f.t.Errorf("GetNewerThan(%s) at %v has not returned within a minute", uid, called)
		}
		if err != nil {
			return
		}
		got := promises.CachedTruth([]cache.Entry{{UID: uid, Status: status}})[uid].Containers
		for id, least := range now {
			if has, ok := got[id]; ok && promises.StateSteps[has.State] < promises.StateSteps[least.State] {
				f.t.Errorf("GetNewerThan(%s) at %v returned at %v that %.12s is %v, it was %v", uid, called, time.Since(f.start), id, has.State, least.State)
			}
		}
	})
}

// play changes the pods while the faults are played. At each third change it requests a
// relist of the pod, at each fourth a reinspection, and at each fifth it waits for the pod,
// unless the runtime lies about states.
func (f *fixture) play() {
	f.t.Helper()
	f.History.Record(f.Truth())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var holds sync.WaitGroup
	for _, fault := range f.scenario.faults {
		holds.Go(func() { f.hold(ctx, fault) })
	}
	changes := 0
	err := f.Node.Churn(ctx, simruntime.ChurnOptions{
		Seed: f.scenario.seed, Rate: float64(f.scenario.rate), Pods: f.scenario.pods,
		Actions: int(float64(f.scenario.rate) * cmp.Or(f.scenario.churn, churnEnd).Seconds()),
		Observe: func(uid pleg.PodUID) {
			f.History.Record(f.Truth())
			changes++
			if changes%2 == 0 {
				f.audience.change()
			}
			if changes%3 == 0 {
				f.RequestRelist(uid)
			}
			if changes%4 == 0 {
				f.RequestReinspect(uid)
			}
			if changes%5 == 0 && !promised(f.scenario).Repeats {
				f.wait(uid)
			}
		},
	})
	cancel()
	holds.Wait()
	if err != nil {
		f.t.Error(err)
	}
}

// hold injects a fault, and clears it when its time or ctx ends. A stream of events meets a fault
// when it is opened: so the open streams break then.
func (f *fixture) hold(ctx context.Context, fault row) {
	if fault.from > 0 && f.Node.SleepAfterCall(ctx, fault.from) != nil {
		return
	}
	end := f.Node.Inject(fault.Fault)
	renew := func() {
		if fault.RPC == "GetContainerEvents" {
			f.Node.BreakEvents()
		}
	}
	renew()
	if fault.until == 0 {
		<-ctx.Done()
	} else {
		_ = f.Node.SleepAfterCall(ctx, fault.until-fault.from) // ctx ends it earlier
	}
	end()
	renew()
}

// spoiledCalls returns the number of calls that a fault has hit.
func (f *fixture) spoiledCalls() (n int64) {
	for _, rpc := range f.Node.Stats().RPCs {
		n += rpc.Spoiled
	}
	return n
}
