package pipeline_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	stormPods  = 30
	stormSteps = 40
	// stormRest is time enough for the slowest subscriber to read everything.
	stormRest = 5 * time.Minute
)

// mirror is the node as one subscriber believes it to be: whether each container
// and sandbox of a pod runs.
type mirror struct {
	view      *view
	cache     *pipeline.Cache
	namespace string // the only one it wants; empty for all
	rng       *rand.Rand
	slowness  time.Duration

	mu   sync.Mutex
	pods map[pleg.PodUID]map[pleg.ContainerID]bool
	// unsure holds the pods whose inspection had failed when they were to be
	// looked at: the next event of them comes once one has succeeded.
	unsure map[pleg.PodUID]bool
}

func (m *mirror) see(ev pleg.Event) {
	m.mu.Lock()
	switch {
	case ev.Type == pleg.Gap:
		clear(m.pods)
		clear(m.unsure)
	case ev.Type == pleg.PodSync || m.unsure[ev.PodUID]:
		m.look(ev.PodUID)
	case ev.Type == pleg.ContainerStarted || ev.Type == pleg.ContainerDied:
		if m.pods[ev.PodUID] == nil {
			m.pods[ev.PodUID] = make(map[pleg.ContainerID]bool)
		}
		m.pods[ev.PodUID][ev.ContainerID] = ev.Type == pleg.ContainerStarted
	case ev.Type == pleg.ContainerRemoved:
		delete(m.pods[ev.PodUID], ev.ContainerID)
	}
	m.mu.Unlock()
	if m.slowness > 0 {
		time.Sleep(time.Duration(m.rng.Int64N(int64(m.slowness))))
	}
}

// look takes over what the cache has of a pod.
func (m *mirror) look(uid pleg.PodUID) {
	status, err := m.cache.Get(uid)
	m.unsure[uid] = err != nil
	if err == nil {
		m.pods[uid] = runningIn(status)
	}
}

// runningIn returns what a status says runs and does not.
func runningIn(s *pleg.PodStatus) map[pleg.ContainerID]bool {
	states := make(map[pleg.ContainerID]bool)
	for _, c := range s.Containers {
		states[c.ID] = c.State == pleg.StateRunning
	}
	for _, sandbox := range s.Sandboxes {
		states[sandbox.ID] = sandbox.Ready
	}
	return states
}

// judge wants the mirror to equal the cache.
func (m *mirror) judge(b *contractBed, name string) {
	want := make(map[pleg.PodUID]map[pleg.ContainerID]bool)
	for _, e := range m.cache.List() {
		if e.Err != nil {
			b.Fatalf("pod %s: %v", e.UID, e.Err)
		}
		if strings.HasPrefix(string(e.UID), m.namespace) {
			want[e.UID] = runningIn(e.Status)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		if len(m.pods[uid]) > 0 && want[uid] == nil {
			b.Errorf("%s: pod %s has %v, but is gone", name, uid, m.pods[uid])
		}
	}
	for uid := range want {
		if !maps.Equal(m.pods[uid], want[uid]) {
			b.Errorf("%s: pod %s has %v, the cache %v", name, uid, m.pods[uid], want[uid])
		}
	}
}

// storm is what happens to the pods, and who watches.
type storm struct {
	*contractBed
	rng     *rand.Rand
	mirrors []*mirror
}

// After a storm each subscriber's view, made of its replay, its events and its
// repairs, equals the cache, however slow it is and whenever it has joined.
func TestContractStorm(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			eachWay(t, pipeline.Options{History: 200}, func(b *contractBed) {
				s := &storm{contractBed: b, rng: rand.New(rand.NewPCG(seed, 7))}
				delays := rand.New(rand.NewPCG(seed, 8))
				var mu sync.Mutex
				b.node.Delay = func(pleg.PodUID) time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(delays.IntN(400)) * time.Millisecond
				}
				for range stormSteps {
					s.strike()
				}
				s.calm()
				for i, m := range s.mirrors {
					m.judge(b, fmt.Sprintf("subscriber %d (slowness %v, %q)", i, m.slowness, m.namespace))
				}
			})
		})
	}
}

var (
	stormNamespaces = []string{"red", "blue"}
	errStorm        = errors.New("storm")
)

func stormPod(i int) pleg.PodUID {
	return pleg.PodUID(fmt.Sprintf("%s/p%d", stormNamespaces[i%2], i))
}

// strike changes some pods, and lets some subscribers join and leave.
func (s *storm) strike() {
	for range s.rng.IntN(stormPods) {
		uid := stormPod(s.rng.IntN(stormPods))
		s.node.Set(uid, s.somePod())
		s.node.Break(uid, nil)
		if s.rng.IntN(6) == 0 {
			s.node.Break(uid, errStorm)
		}
		if s.rng.IntN(6) == 0 {
			s.pipe.RequestReinspect(uid)
		}
	}
	if s.rng.IntN(2) == 0 {
		s.join()
	}
	if n := len(s.mirrors); n > 4 && s.rng.IntN(3) == 0 {
		i := s.rng.IntN(n)
		s.mirrors[i].view.end()
		s.mirrors = append(s.mirrors[:i], s.mirrors[i+1:]...)
	}
	time.Sleep(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
}

func (s *storm) somePod() string {
	var words []string
	for _, id := range []string{"c1", "c2", "c3", "/s1", "/s2"} {
		switch s.rng.IntN(3) {
		case 0:
			words = append(words, id+"=running")
		case 1:
			words = append(words, id+"=exited")
		}
	}
	return strings.Join(words, " ")
}

func (s *storm) join() {
	m := &mirror{
		cache: s.pipe.Cache(), rng: rand.New(rand.NewPCG(s.rng.Uint64(), 0)),
		pods: make(map[pleg.PodUID]map[pleg.ContainerID]bool), unsure: make(map[pleg.PodUID]bool),
	}
	o := pipeline.SubscribeOptions{Buffer: 1 + s.rng.IntN(20)}
	switch s.rng.IntN(3) {
	case 0:
		o.Replay = true
	case 1:
		o.After = pipeline.Position{Epoch: s.pipe.Epoch()}
	default:
		o.After = pipeline.Position{Epoch: "another"}
	}
	if s.rng.IntN(3) == 0 {
		m.namespace = stormNamespaces[s.rng.IntN(2)]
		o.Namespaces = []string{m.namespace}
	}
	if s.rng.IntN(3) > 0 {
		m.slowness = time.Duration(1+s.rng.IntN(400)) * time.Millisecond
	}
	s.mirrors = append(s.mirrors, m)
	m.view = s.subscribeSeeing(o, m.see)
}

// calm heals the node and lets everybody read what there is.
func (s *storm) calm() {
	for i := range stormPods {
		s.node.Break(stormPod(i), nil)
	}
	time.Sleep(stormRest)
	if len(s.mirrors) < 4 {
		s.Errorf("only %d subscribers are left, the test does not test much", len(s.mirrors))
	}
}
