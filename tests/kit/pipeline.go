// Package kit contains the helpers of the black-box tests; the tests of the stages use some of
// them. It runs a pipeline on a runtime and collects the events of subscribers. Package promises
// checks these events.
//
// [Pipeline] runs on a [plegtest.Runtime], [Simulation] on a simulated CRI runtime.
//
// Functions that wait are for tests in a testing/synctest bubble.
package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// Bubble runs a subtest in a bubble of its own.
func Bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Run calls run in a goroutine until stop is called or the test ends. stop cancels the context and
// returns the error of run. At the end of the test the error must be nil or [context.Canceled].
func Run(t testing.TB, run func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Hour): // timers hide a deadlock from the bubble
			panic("kit: Run has not returned an hour after its context ended")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want none or %v", err, context.Canceled)
		}
	})
	return stop
}

// Pipeline is a pipeline on a runtime in memory.
type Pipeline struct {
	*pipeline.Pipeline
	Runtime *plegtest.Runtime
	Metrics *prometheus.Registry
	// Stop ends Run and returns its error. Stop is nil before Start.
	Stop func() error
}

// Look returns the status of the pipeline.
func (p *Pipeline) Look() pleg.Status {
	s, _ := p.Status(context.Background())
	return s
}

// New returns a pipeline that does not run yet. Without a Runtime in o, it gets a runtime without
// single-pod lists and CRI events. Without a Registerer in o, it gets [Pipeline.Metrics].
func New(t testing.TB, o pipeline.Options) *Pipeline {
	t.Helper()
	p := &Pipeline{Runtime: plegtest.New(), Metrics: prometheus.NewPedanticRegistry()}
	if o.Runtime == nil {
		o.Runtime = p.Runtime.Basic()
	}
	if o.Registerer == nil {
		o.Registerer = Kept{p.Metrics}
	}
	var err error
	if p.Pipeline, err = pipeline.New(o); err != nil {
		t.Fatalf("New: %v", err)
	}
	return p
}

// Kept is a registerer that keeps the metrics of ended pipelines.
type Kept struct{ prometheus.Registerer }

// Unregister implements [prometheus.Registerer].
func (Kept) Unregister(prometheus.Collector) bool { return false }

// Start runs the pipeline until the test ends.
func (p *Pipeline) Start(t testing.TB) {
	t.Helper()
	p.Stop = Run(t, p.Run)
}

// StartBetweenLists is Start, and then waits until the middle between two lists, so that the next
// step of the test coincides with no list.
func (p *Pipeline) StartBetweenLists(t testing.TB) {
	t.Helper()
	p.Start(t)
	time.Sleep(pipeline.DefaultRelistPeriod / 2)
}

// Events subscribes to all events until the test ends. The channel holds a number of them; 0
// is enough for most tests.
func (p *Pipeline) Events(t testing.TB, buffer int) <-chan pleg.Event {
	t.Helper()
	sub, err := p.Subscribe(pleg.SubscribeOptions{})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	events := make(chan pleg.Event, cmp.Or(buffer, 1000))
	go func() {
		defer close(events)
		for ev, err := range sub.All(t.Context()) {
			if err != nil {
				return
			}
			select {
			case events <- ev:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return events
}

// Follow subscribes until the pipeline ends. The subscriber's See is called with each event.
func (p *Pipeline) Follow(t testing.TB, o pleg.SubscribeOptions, see func(pleg.Event)) *Subscriber {
	t.Helper()
	sub, err := p.Subscribe(o)
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	s := NewSubscriber(see, sub.Close)
	go func() {
		defer close(s.Done)
		for ev, err := range sub.All(context.Background()) {
			if err != nil {
				return
			}
			s.Add(ev)
		}
	}()
	return s
}

// Relist waits until the next n lists have settled, if lists follow each other
// after [pipeline.DefaultRelistPeriod].
func Relist(n int) {
	time.Sleep(time.Duration(n) * pipeline.DefaultRelistPeriod)
	synctest.Wait()
}

// UIDs returns n pod UIDs: p0, p1 and so on.
func UIDs(n int) []pleg.PodUID {
	uids := make([]pleg.PodUID, n)
	for i := range uids {
		uids[i] = pleg.PodUID(fmt.Sprintf("p%d", i))
	}
	return uids
}

// Fill sets the first n of [UIDs] to the same words.
func Fill(r *plegtest.Runtime, n int, words string) {
	for _, uid := range UIDs(n) {
		r.Set(uid, words)
	}
}
