package slow_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// burst is a change of all pods at once on a slow runtime.
type burst struct {
	pods, inspectors int
	// cold: the pods are the first that the pipeline sees. Otherwise it has known them,
	// and the runtime, from quicker times.
	cold    bool
	servers int
	takes   func(n int) time.Duration
	// lifo and finishes are those of queue.
	lifo, finishes bool
}

// result is what a burst costs until the last event.
type result struct {
	took  time.Duration
	calls int
}

func constant(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// tailed has a log-normal distribution whose p99 is 20 times the median.
func tailed(median time.Duration) func(int) time.Duration {
	return func(n int) time.Duration {
		drawn := rand.New(rand.NewPCG(1, uint64(n))).NormFloat64()
		return time.Duration(float64(median) * math.Exp(1.3*drawn))
	}
}

// run plays the burst with what start starts.
func (b burst) run(t *testing.T, start func(t *testing.T, rt *plegtest.Runtime) <-chan pleg.Event) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		q := &queue{lifo: b.lifo, finishes: b.finishes}
		rt.SetInspectFault(q.serve)
		q.reset(math.MaxInt, constant(5*time.Millisecond))
		words := "c=running"
		if !b.cold {
			kit.Fill(rt, b.pods, words)
			words = "c=exited"
		}
		events := start(t, rt)
		time.Sleep(10*time.Second + pipeline.DefaultRelistPeriod/2)
		kit.Drain(events)
		began := time.Now()
		q.reset(b.servers, b.takes)
		kit.Fill(rt, b.pods, words)
		for range b.pods {
			<-events
		}
		r.took = time.Since(began)
		time.Sleep(pipeline.DefaultInspectTimeout) // for the calls that are left
		r.calls = q.count()
	})
	return r
}

func (b burst) serial(t *testing.T) result {
	return b.run(t, func(t *testing.T, rt *plegtest.Runtime) <-chan pleg.Event {
		events := make(chan pleg.Event, 10*b.pods)
		p, err := serial.New(rt.Basic(), serial.Options{Events: events})
		if err != nil {
			t.Fatal(err)
		}
		kit.Run(t, func(ctx context.Context) error { return p.Run(ctx, pipeline.DefaultRelistPeriod) })
		return events
	})
}

func (b burst) pipeline(t *testing.T) result {
	return b.run(t, func(t *testing.T, rt *plegtest.Runtime) <-chan pleg.Event {
		p := kit.New(t, pipeline.Options{Runtime: rt.Basic(), Inspectors: b.inspectors})
		events := p.Events(t, 10*b.pods)
		p.Start(t)
		return events
	})
}

// compare requires that the pipeline takes at most a part more time and calls than the
// serial baseline.
func (b burst) compare(t *testing.T, most float64) {
	t.Helper()
	t.Parallel()
	want := b.serial(t)
	got := b.pipeline(t)
	if got.took.Seconds() > most*want.took.Seconds() {
		t.Errorf("took %v, want at most %v times the %v of the serial baseline", got.took, most, want.took)
	}
	if float64(got.calls) > most*float64(b.pods) {
		t.Errorf("%d calls for %d pods, want at most %v for each", got.calls, b.pods, most)
	}
}

// A runtime serves one, two or four inspections at once. The pipeline must not be worse
// than the serial baseline, whether the runtime drops cancelled calls or finishes them.
func TestSlowRuntime(t *testing.T) {
	for _, servers := range []int{1, 2, 4} {
		for _, takes := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
			for n := range 8 {
				b := burst{
					pods: 110, inspectors: 8 << (n & 1), servers: servers, takes: constant(takes),
					cold: n&2 > 0, finishes: n&4 > 0,
				}
				t.Run(fmt.Sprintf("serves %d in %v, %d inspectors, cold %v, finishes %v", servers, takes, b.inspectors, b.cold, b.finishes),
					func(t *testing.T) { b.compare(t, 1.1) })
			}
		}
	}
}

func TestSlowRuntimeInOtherOrders(t *testing.T) {
	serves := func(servers int, takes func(int) time.Duration) burst {
		return burst{pods: 110, inspectors: 8, servers: servers, takes: takes, finishes: true}
	}
	many := serves(1, constant(time.Second))
	many.pods = 300
	many16 := many
	many16.inspectors = 16
	last := func(pods, inspectors, servers int, takes time.Duration) burst {
		return burst{pods: pods, inspectors: inspectors, servers: servers, takes: constant(takes), lifo: true}
	}
	for name, tc := range map[string]struct {
		burst burst
		most  float64
	}{
		"300 pods":                      {many, 1.1},
		"300 pods, 16 inspectors":       {many16, 1.1},
		"a heavy tail":                  {serves(1, tailed(500*time.Millisecond)), 1.1},
		"a heavy tail, serves four":     {serves(4, tailed(500*time.Millisecond)), 1.1},
		"the last call first":           {last(110, 8, 1, time.Second), 1.5},
		"the last first, 16 inspectors": {last(110, 16, 1, 2*time.Second), 1.5},
		"the last first, 300 pods":      {last(300, 16, 1, 2*time.Second), 1.5},
		"the last first, quick":         {last(300, 16, 1, time.Second/10), 1.5},
		"the last first, serves two":    {last(300, 16, 2, 2*time.Second), 1.5},
		"the last first, serves four":   {last(300, 16, 4, 2*time.Second), 1.5},
		"slow for a minute, 2 s a call": {serves(1, slowFor(2*time.Second)), 1.1},
		"slow for a minute, 9 s a call": {serves(1, slowFor(9*time.Second)), 1.1},
		"slow for a minute, 5 s, four":  {serves(4, slowFor(5*time.Second)), 1.1},
	} {
		t.Run(name, func(t *testing.T) { tc.burst.compare(t, tc.most) })
	}
}

// Runtimes that serve all calls at once, each in a long time, must not get more of them.
func TestSlowParallelRuntime(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Second, 30 * time.Second, 90 * time.Second} {
		for n := range 4 {
			b := burst{pods: 110, inspectors: 8 << (n & 1), servers: math.MaxInt, takes: constant(takes), cold: n&2 > 0}
			t.Run(fmt.Sprintf("%v, %d inspectors, cold %v", takes, b.inspectors, b.cold), func(t *testing.T) { b.compare(t, 1.1) })
		}
	}
}

// slowFor takes d for the calls of the first minute or so, then little.
func slowFor(d time.Duration) func(int) time.Duration {
	return func(n int) time.Duration {
		if n < int(time.Minute/d) {
			return d
		}
		return 20 * time.Millisecond
	}
}
