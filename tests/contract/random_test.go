package contract_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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

// reader is a subscriber that rebuilds the state of the node.
type reader struct {
	*kit.Subscriber
	state     *promises.State
	namespace string // the only one that it wants; empty for all
	slowness  time.Duration
}

// random is a pipeline whose pods and subscribers change at random.
type random struct {
	*fixture
	rng     *rand.Rand
	readers []*reader
}

// After random changes, the state that each subscriber rebuilt from its replay, its
// events and its repairs equals the cache, however slow it reads and whenever it
// joined.
func TestContractRandomSubscribers(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			eachWay(t, pipeline.Options{History: 200}, func(f *fixture) {
				r := &random{fixture: f, rng: rand.New(rand.NewPCG(seed, 7))}
				f.Runtime.SetInspectFault(randomDelay(seed))
				for range randomSteps {
					r.change()
				}
				r.settle()
				for i, reader := range r.readers {
					reader.requireCached(r, fmt.Sprintf("subscriber %d (slowness %v, %q)", i, reader.slowness, reader.namespace))
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
		r.Runtime.Set(uid, r.words())
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
	if n := len(r.readers); n > 4 && r.rng.IntN(3) == 0 {
		i := r.rng.IntN(n)
		r.readers[i].Close()
		r.readers = append(r.readers[:i], r.readers[i+1:]...)
	}
	time.Sleep(time.Duration(r.rng.IntN(1500)) * time.Millisecond)
}

// words returns a random state of a pod.
func (r *random) words() string {
	var words []string
	for _, id := range []string{"c1", "c2", "c3", "/s1", "/s2"} {
		switch r.rng.IntN(3) {
		case 0:
			words = append(words, id+"=running")
		case 1:
			words = append(words, id+"=exited")
		}
	}
	return strings.Join(words, " ")
}

func (r *random) join() {
	reader := &reader{state: &promises.State{Look: r.Cache().Get}}
	rng := rand.New(rand.NewPCG(r.rng.Uint64(), 0))
	o := pipeline.SubscribeOptions{Buffer: 1 + r.rng.IntN(20)}
	switch r.rng.IntN(3) {
	case 0:
		o.Replay = true
	case 1:
		o.After = pleg.Position{Epoch: r.Epoch()}
	default:
		o.After = pleg.Position{Epoch: "another"}
	}
	if r.rng.IntN(3) == 0 {
		reader.namespace = randomNamespaces[r.rng.IntN(2)]
		o.Namespaces = []string{reader.namespace}
		reader.state.Wants = func(p promises.Pod, _ promises.Container) bool { return p.Namespace == reader.namespace }
	}
	if r.rng.IntN(3) > 0 {
		reader.slowness = time.Duration(1+r.rng.IntN(400)) * time.Millisecond
	}
	reader.Subscriber = r.open(o, func(ev pleg.Event) {
		reader.state.Add(ev)
		if reader.slowness > 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(reader.slowness))))
		}
	})
	r.readers = append(r.readers, reader)
}

// settle ends the faults and waits until every subscriber has read everything.
func (r *random) settle() {
	for i := range randomPods {
		r.Runtime.SetPodFault(randomPod(i), nil)
	}
	time.Sleep(timeToRead)
	synctest.Wait()
	if len(r.readers) < 4 {
		r.Errorf("only %d subscribers are left, too few for this test", len(r.readers))
	}
}

func (s *reader) requireCached(r *random, name string) {
	entries := r.Cache().List()
	for _, e := range entries {
		if e.Err != nil {
			r.Fatalf("pod %s: %v", e.UID, e.Err)
		}
	}
	for _, line := range s.state.Diff(promises.CachedTruth(entries)) {
		r.Errorf("%s: %s", name, line)
	}
}
