package invariants_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var allBursts = flag.Bool("invariants.all", false, "run all bursts of TestSlowRuntime")

// burst is a change of all pods at once on a slow runtime.
type burst struct {
	pods, inspectors int
	// cold: the pipeline has seen no pod before. Otherwise the pipeline knows the pods, and the
	// runtime has answered quickly so far.
	cold    bool
	servers int
	takes   func(n int) time.Duration
	// lifo and finishes are passed to queue.
	lifo, finishes bool
	// most is the bound on time and calls, as a multiple of the serial kubelet's.
	most float64
}

func constant(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// tailed is log-normally distributed, with a p99 of 20 times the median.
func tailed(median time.Duration) func(int) time.Duration {
	return func(n int) time.Duration {
		drawn := rand.New(rand.NewPCG(1, uint64(n))).NormFloat64()
		return time.Duration(float64(median) * math.Exp(1.3*drawn))
	}
}

// serial is how long the burst takes the serial kubelet, which makes a call for each pod, one
// after the other.
func (b burst) serial() (took time.Duration) {
	for n := range b.pods {
		took += b.takes(n)
	}
	return took
}

// run plays the burst with the pipeline. It returns the time until the last event, and the
// number of calls.
func (b burst) run(t *testing.T) (took time.Duration, calls int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{Inspectors: b.inspectors})
		q := &queue{lifo: b.lifo, finishes: b.finishes}
		p.Runtime.SetInspectFault(q.serve)
		q.reset(math.MaxInt, constant(5*time.Millisecond))
		words := "c=running"
		if !b.cold {
			kit.Fill(p.Runtime, b.pods, words)
			words = "c=exited"
		}
		events := p.Events(t, 10*b.pods)
		p.Start(t)
		time.Sleep(10*time.Second + pipeline.DefaultRelistPeriod/2)
		kit.Drain(events)
		began := time.Now()
		q.reset(b.servers, b.takes)
		kit.Fill(p.Runtime, b.pods, words)
		for range b.pods {
			<-events
		}
		took = time.Since(began)
		time.Sleep(pipeline.DefaultInspectTimeout) // for the calls that are left
		calls = q.count()
	})
	return took, calls
}

func bursts() map[string]burst {
	all := make(map[string]burst)
	for n := range 8 {
		if !*allBursts && n%7 > 0 {
			continue // "make faults" runs them
		}
		b := burst{pods: nodePods / 2, inspectors: 8 << (n & 1), cold: n&2 > 0, finishes: n&4 > 0, most: 1.1}
		add := func(servers int, takes time.Duration) {
			b.servers, b.takes = servers, constant(takes)
			all[fmt.Sprintf("serves %d in %v, %d inspectors, cold %v, finishes %v", servers, takes, b.inspectors, b.cold, b.finishes)] = b
		}
		for _, servers := range []int{1, 2, 4} {
			for _, takes := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
				add(servers, takes)
			}
		}
		if b.pods = nodePods; !b.finishes { // runtimes that serve all calls at once, each in a long time
			for _, takes := range []time.Duration{10 * time.Second, 30 * time.Second, 90 * time.Second} {
				add(math.MaxInt, takes)
			}
		}
	}
	serves := func(name string, pods, inspectors, servers int, takes func(int) time.Duration) {
		all[name] = burst{pods: pods, inspectors: inspectors, servers: servers, takes: takes, finishes: true, most: 1.1}
	}
	serves("300 pods", 300, 8, 1, constant(time.Second))
	serves("300 pods, 16 inspectors", 300, 16, 1, constant(time.Second))
	serves("a heavy tail", nodePods, 8, 1, tailed(500*time.Millisecond))
	serves("a heavy tail, serves four", nodePods, 8, 4, tailed(500*time.Millisecond))
	serves("slow for a minute, 2 s a call", nodePods, 8, 1, slowFor(2*time.Second))
	serves("slow for a minute, 9 s a call", nodePods, 8, 1, slowFor(9*time.Second))
	serves("slow for a minute, 5 s, four", nodePods, 8, 4, slowFor(5*time.Second))
	// The worst case is a runtime that serves the last call first.
	lifo := []burst{
		{pods: nodePods, inspectors: 8, servers: 1, takes: constant(time.Second)},
		{pods: nodePods, inspectors: 16, servers: 1, takes: constant(2 * time.Second)},
		{pods: 300, inspectors: 16, servers: 1, takes: constant(time.Second / 10)},
		{pods: 300, inspectors: 16, servers: 1, takes: constant(2 * time.Second)},
		{pods: 300, inspectors: 16, servers: 2, takes: constant(2 * time.Second)},
		{pods: 300, inspectors: 16, servers: 4, takes: constant(2 * time.Second)},
	}
	if !*allBursts {
		lifo = lifo[:3]
	}
	for _, b := range lifo {
		b.lifo, b.most = true, 1.5
		all[fmt.Sprintf("last first, %d pods, %d inspectors, serves %d in %v", b.pods, b.inspectors, b.servers, b.takes(0))] = b
	}
	return all
}

// On a runtime that serves few inspections at once, or all of them slowly, the pipeline must
// not be worse than the serial kubelet, whether the runtime drops cancelled calls or
// finishes them.
func TestSlowRuntime(t *testing.T) {
	for name, b := range bursts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serial := b.serial()
			took, calls := b.run(t)
			if took.Seconds() > b.most*serial.Seconds() || float64(calls) > b.most*float64(b.pods) {
				t.Errorf("%v and %d calls, want at most %v times the %v and %d calls of the serial kubelet", took, calls, b.most, serial, b.pods)
			}
		})
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

// queue is a runtime that serves a number of inspections at once; the others wait.
// Its method serve is a [plegtest.Fault].
type queue struct {
	servers int
	// takes returns the time of service of the nth call.
	takes func(n int) time.Duration
	// lifo serves the call that came last.
	lifo bool
	// finishes serves cancelled calls in full.
	finishes bool

	mu      sync.Mutex
	calls   int
	free    int
	waiting []*queued
}

type queued struct {
	takes time.Duration
	timer *time.Timer // while it is served
	done  chan struct{}
}

// reset forgets the calls so far.
func (q *queue) reset(servers int, takes func(int) time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.servers, q.free, q.takes, q.calls = servers, servers, takes, 0
}

func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.calls
}

func (q *queue) serve(ctx context.Context) error {
	q.mu.Lock()
	c := &queued{takes: q.takes(q.calls), done: make(chan struct{})}
	q.calls++
	q.waiting = append(q.waiting, c)
	q.next()
	q.mu.Unlock()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.finishes {
		return ctx.Err()
	}
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else if c.timer.Stop() {
		q.free++
		q.next()
	}
	return ctx.Err()
}

// next serves waiting calls. The lock is held.
func (q *queue) next() {
	for q.free > 0 && len(q.waiting) > 0 {
		i := 0
		if q.lifo {
			i = len(q.waiting) - 1
		}
		c := q.waiting[i]
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.free--
		c.timer = time.AfterFunc(c.takes, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			close(c.done)
			q.free++
			q.next()
		})
	}
}
