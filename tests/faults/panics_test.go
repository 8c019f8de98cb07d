package faults_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// methods are the methods of pipeline.Runtime. A fault whose RPC is one of them is
// a panic of that method.
var methods = []string{"ListPods", "PodStatus", "ListPod", "WatchEvents"}

func panics(f simruntime.Fault) bool { return slices.Contains(methods, f.RPC) }

// panickingClient is a client whose methods panic under the faults. WatchEvents
// panics at an event.
type panickingClient struct {
	*cri.Client

	mu     sync.Mutex
	start  time.Time
	faults []*methodFault
	hits   int
}

type methodFault struct {
	simruntime.Fault
	matched, hit int
	rng          *rand.Rand
}

func newPanickingClient(client *cri.Client, faults []simruntime.Fault) *panickingClient {
	c := &panickingClient{Client: client, start: time.Now()}
	for _, f := range faults {
		if panics(f) {
			c.faults = append(c.faults, &methodFault{Fault: f, rng: rand.New(rand.NewPCG(f.Seed, 1))})
		}
	}
	return c
}

func (c *panickingClient) clearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

func (c *panickingClient) panicked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits
}

func (c *panickingClient) panicIfFaulty(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if f.RPC == method && f.hits(time.Since(c.start)) {
			c.hits++
			panic("injected panic of " + method)
		}
	}
}

func (f *methodFault) hits(now time.Duration) bool {
	if now < f.From || f.Until > 0 && now >= f.Until || f.Times > 0 && f.hit == f.Times {
		return false
	}
	if f.matched++; f.matched <= f.After || f.Probability > 0 && f.rng.Float64() >= f.Probability {
		return false
	}
	f.hit++
	return true
}

func (c *panickingClient) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	c.panicIfFaulty("ListPods")
	return c.Client.ListPods(ctx)
}

func (c *panickingClient) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	c.panicIfFaulty("PodStatus")
	return c.Client.PodStatus(ctx, pod, last)
}

func (c *panickingClient) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	c.panicIfFaulty("ListPod")
	return c.Client.ListPod(ctx, uid)
}

func (c *panickingClient) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	return c.Client.WatchEvents(ctx, opened, func(h pleg.Hint) {
		c.panicIfFaulty("WatchEvents")
		hint(h)
	})
}
