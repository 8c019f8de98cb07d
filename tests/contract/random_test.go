package contract_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	randomPods  = 30
	randomSteps = 40
	// timeToRead is enough for the slowest subscriber to read everything.
	timeToRead = 5 * time.Minute
)

var (
	randomNamespaces = []string{"red", "blue"}
	errInspect       = errors.New("inspection failed")
)

// randomFilters are the filters of subscribers, and which containers each wants.
var randomFilters = []struct {
	filter pleg.Filter
	wants  func(promises.Pod, promises.Container) bool
}{
	{},
	{},
	{filter: pleg.Filter{NetworkEvents: true}},
	{filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}}},
	{filter: pleg.Filter{NetworkEvents: true, Types: []pleg.EventType{pleg.NetworkSetupCompleted, pleg.NetworkFailed}}},
	{pleg.Filter{Namespaces: []string{"red", "green"}}, func(p promises.Pod, _ promises.Container) bool { return p.Namespace == "red" }},
	{pleg.Filter{PodUIDs: []pleg.PodUID{"red/p2", "none"}}, func(p promises.Pod, _ promises.Container) bool { return p.Name == "name-red/p2" }},
	// The label of a removed pod is still known.
	{pleg.Filter{Selector: "pod in (p1, p2), pod != p2"}, func(p promises.Pod, _ promises.Container) bool { return p.Name == "name-blue/p1" }},
	{pleg.Filter{OmitSandboxes: true}, func(_ promises.Pod, c promises.Container) bool { return !c.Sandbox }},
	{
		pleg.Filter{Namespaces: []string{"red"}, Selector: "pod=p4", OmitSandboxes: true, Types: []pleg.EventType{pleg.ContainerDied}},
		func(p promises.Pod, c promises.Container) bool { return p.Name == "name-red/p4" && !c.Sandbox },
	},
}

// random is a pipeline whose pods and subscribers change at random.
type random struct {
	*fixture
	rng         *rand.Rand
	all         subscriber
	subscribers []subscriber
}

// However slow a subscriber reads, whatever it asks for and whenever it joins, it gets
// what is promised.
func TestContractRandomSubscribers(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			eachWay(t, pipeline.Options{History: 200}, func(f *fixture) {
				r := &random{fixture: f, rng: rand.New(rand.NewPCG(seed, 7))}
				r.all = f.subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{NetworkEvents: true}})
				f.Runtime.SetInspectFault(randomDelay(seed))
				for range randomSteps {
					r.change()
				}
				for i := range randomPods {
					f.Runtime.SetPodFault(randomPod(i), nil)
				}
				time.Sleep(timeToRead)
				if len(r.subscribers) < 4 {
					t.Errorf("only %d subscribers are left, too few for this test", len(r.subscribers))
				}
				for i, s := range append(r.subscribers, r.all) {
					f.require(fmt.Sprintf("subscriber %d", i), s, r.all)
				}
				for _, s := range r.subscribers { // some pause
					s.Close()
					<-s.Done
				}
			})
		})
	}
}

func randomDelay(seed uint64) plegtest.Fault {
	rng := rand.New(rand.NewPCG(seed, 8))
	var mu sync.Mutex
	return func(ctx context.Context) error {
		mu.Lock()
		d := time.Duration(rng.IntN(400)) * time.Millisecond
		mu.Unlock()
		return plegtest.Delay(d)(ctx)
	}
}

func randomPod(i int) pleg.PodUID {
	return pleg.PodUID(fmt.Sprintf("%s/p%d", randomNamespaces[i%2], i))
}

// change changes some pods, and lets some subscribers join and leave.
func (r *random) change() {
	for range r.rng.IntN(randomPods) {
		uid := randomPod(r.rng.IntN(randomPods))
		r.step(uid)
		r.Runtime.SetPodFault(uid, nil)
		if r.rng.IntN(6) == 0 {
			r.Runtime.SetPodFault(uid, plegtest.Fail(errInspect))
		}
		if r.rng.IntN(6) == 0 {
			r.RequestReinspect(uid)
		}
	}
	if r.rng.IntN(2) == 0 {
		r.join()
	}
	if n := len(r.subscribers); n > 12 && r.rng.IntN(3) == 0 {
		i := r.rng.IntN(n)
		r.subscribers[i].Close()
		r.subscribers = slices.Delete(r.subscribers, i, i+1)
	}
	time.Sleep(time.Duration(r.rng.IntN(1500)) * time.Millisecond)
}

func (r *random) join() {
	published := r.all.Events()
	o := pipeline.SubscribeOptions{Bookmarks: r.rng.IntN(2) == 0}
	if r.rng.IntN(4) > 0 {
		o.Replay = true
	}
	switch r.rng.IntN(5) {
	case 0:
		o.After = pleg.Position{Epoch: r.Epoch()}
	case 1:
		o.After = pleg.Position{Epoch: "another"}
	case 3:
		o.After = pleg.Position{Epoch: r.Epoch(), Seq: 1 << 40} // a number that is not given yet
	case 2:
		if n := len(published); n > 0 {
			o.After, _ = published[n-1-r.rng.IntN(min(n, 250))].Position()
		}
	default:
		o.Replay = true
	}
	filter := randomFilters[r.rng.IntN(len(randomFilters))]
	o.Filter = filter.filter
	// The event after a failed inspection may be of a sandbox.
	o.Statuses = o.Filter.OmitSandboxes || r.rng.IntN(2) == 0
	slowness := time.Duration(0)
	if r.rng.IntN(3) > 0 {
		slowness = time.Duration(1+r.rng.IntN(400)) * time.Millisecond
	}
	rng := rand.New(rand.NewPCG(r.rng.Uint64(), 0))
	var pause func()
	if slowness > 0 {
		pause = func() { time.Sleep(time.Duration(rng.Int64N(int64(slowness)))) }
	}
	s := r.subscribeSlowly(o, filter.wants, pause)
	r.subscribers = append(r.subscribers, s)
}
