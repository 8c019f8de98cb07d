package kubelet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// TestTimesAgainstGenericPLEG changes pods whose inspections take time, with callers
// that wait for them in GetNewerThan, in GenericPLEG and in this generator. While the inspections
// run, it checks the times of the pod cache and the statuses that the callers get. The pipeline
// must be as correct as GenericPLEG, and never later.
func TestTimesAgainstGenericPLEG(t *testing.T) {
	for i := range max(1, *sequences/3) {
		seed := *firstSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) { newHistory(t, seed).run() })
		if t.Failed() {
			t.Fatalf("run again with -seed %d -sequences 1", seed)
		}
	}
}

const (
	timedPods = 24
	// tick is the time between two checks.
	tick = 10 * time.Millisecond
)

// change is a change of a pod at a time. gone is true if it was removed.
type change struct {
	at   time.Time
	gone bool
}

// history is one random sequence.
type history struct {
	t     *testing.T
	rand  *rand.Rand
	sides []*side
	// changes are all changes of each pod, oldest first.
	changes map[types.UID][]change
	// longest is the longest inspection of a changed pod, serial the sum of all inspections.
	longest, serial time.Duration
}

// side is one of the two generators with its callers.
type side struct {
	*generator
	name    string
	callers []*caller

	mu sync.Mutex // guards the fields below
	// changed is the time of the first changes, last when the last event came.
	changed, last time.Time
	early         []string // events that came before the cache was written
}

// caller waits in GetNewerThan.
type caller struct {
	uid      types.UID
	min      time.Time
	returned chan struct{}
	// at and status are set before returned is closed.
	at     time.Time
	status *kubecontainer.PodStatus
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, rand: rand.New(rand.NewPCG(seed, 1)), changes: make(map[types.UID][]change)}
	for _, name := range []string{"GenericPLEG", "pipeline"} {
		s := &side{generator: newGenerator(name == "GenericPLEG"), name: name}
		s.cache.yields = 20
		h.sides = append(h.sides, s)
	}
	return h
}

// run changes pods half a second before a list, so that both generators list them at
// the same time. In half of the sequences more changes follow during the inspections.
func (h *history) run() {
	for i := range timedPods {
		h.set(timedUID(i), "c0=running /s0=running")
	}
	stop := make(chan struct{})
	for _, s := range h.sides {
		s.start(h.t)
		go s.readEvents(stop)
	}
	time.Sleep(2500 * time.Millisecond)
	h.change()
	listed := time.Now().Truncate(time.Second).Add(time.Second)
	h.watch(time.Until(listed) + tick)
	h.checkReleased(listed)
	again := h.rand.IntN(2) == 0
	if again {
		h.changeAgain()
	}
	h.watch(20 * time.Second)
	for _, s := range h.sides {
		s.stop()
	}
	close(stop)
	synctest.Wait()
	h.checkCallers()
	if !again {
		h.checkEvents(listed)
	}
}

func timedUID(i int) types.UID { return types.UID(fmt.Sprintf("p%d", i)) }

// set changes a pod in both runtimes, or removes it if words is empty.
func (h *history) set(uid types.UID, words string) {
	for _, s := range h.sides {
		s.runtime.set(uid, words)
	}
	h.changes[uid] = append(h.changes[uid], change{time.Now(), words == ""})
}

// change changes between 2 and 16 pods, so that there is an inspector for each pod. One call is
// slow, one pod is gone.
func (h *history) change() {
	for _, s := range h.sides {
		s.mu.Lock()
		s.changed = time.Now()
		s.mu.Unlock()
	}
	n := 2 + h.rand.IntN(15)
	for i := range n {
		uid := timedUID(i)
		delay := time.Duration(h.rand.IntN(40)) * tick
		words := "c0=exited /s0=running"
		switch {
		case i == 0:
			delay = 400 * time.Millisecond
		case i == 1:
			words = ""
		case h.rand.IntN(3) == 0:
			words = "c1=running c0=exited /s0=running"
		}
		for _, s := range h.sides {
			s.runtime.slow(uid, delay)
		}
		if words == "" {
			delay = 0
		}
		h.longest = max(h.longest, delay)
		h.set(uid, words)
		h.serial += delay
	}
	for i := range timedPods {
		h.call(timedUID(i))
	}
}

// changeAgain changes pods while inspections run, and requests relists of some pods. No list begins
// at the time of a change: the pod cache takes such a list for newer.
func (h *history) changeAgain() {
	for i := range 8 {
		uid := timedUID(2 * i)
		h.watch(time.Duration(h.rand.IntN(20))*tick + tick/100)
		h.set(uid, fmt.Sprintf("d%d=running /s0=running", i))
		h.call(uid)
		if h.rand.IntN(2) == 0 {
			for _, s := range h.sides {
				s.pleg.RequestRelist(logr.Discard(), uid)
			}
		}
	}
}

// call waits in both caches for the present state of a pod.
func (h *history) call(uid types.UID) {
	for _, s := range h.sides {
		c := &caller{uid: uid, min: time.Now(), returned: make(chan struct{})}
		s.callers = append(s.callers, c)
		go func() {
			c.status, _ = s.cache.newerThan(uid, c.min)
			c.at = time.Now()
			close(c.returned)
		}()
	}
}

// watch checks the caches at each tick.
func (h *history) watch(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(tick, time.Until(end)))
		synctest.Wait()
		for _, s := range h.sides {
			for uid := range h.changes {
				h.checkClaim(s, uid)
			}
		}
	}
}

// checkClaim checks that the status of a pod contains the last change before the time up to which
// the cache claims to be correct about the pod.
func (h *history) checkClaim(s *side, uid types.UID) {
	claim := s.cache.newest(uid)
	last, ok := lastBefore(h.changes[uid], claim)
	if !ok {
		return
	}
	of, has := s.cache.statusTime(uid)
	if gone := slices.ContainsFunc(h.changes[uid], func(c change) bool { return c.gone }); !has && gone {
		return
	}
	if of.Before(last.at) {
		h.t.Fatalf("%s: at %s the cache claims to be correct about pod %s up to %s; the status is of %s (%v), the pod changed at %s",
			s.name, clockTime(time.Now()), uid, clockTime(claim), clockTime(of), has, clockTime(last.at))
	}
}

// lastBefore returns the last change before a time.
func lastBefore(changes []change, t time.Time) (change, bool) {
	for _, c := range slices.Backward(changes) {
		if c.at.Before(t) {
			return c, true
		}
	}
	return change{}, false
}

func clockTime(t time.Time) string { return t.Format("05.000000") }

// checkReleased checks that the pipeline has released the callers of all pods that need
// no inspection, although inspections run.
func (h *history) checkReleased(listed time.Time) {
	for _, c := range h.sides[1].callers {
		changes := h.changes[c.uid]
		inspected := len(changes) > 1 && !changes[1].gone
		select {
		case <-c.returned:
			if c.at.Before(listed) {
				h.t.Errorf("GetNewerThan of pod %s returned before the list", c.uid)
			}
		default:
			if !inspected {
				h.t.Errorf("GetNewerThan of pod %s, which needs no inspection, has not returned after the list", c.uid)
			}
		}
	}
}

// readEvents notes when the last event came, and checks that the cache is at least as
// new as each event.
func (s *side) readEvents(stop <-chan struct{}) {
	for {
		select {
		case e := <-s.pleg.Watch():
			status, has := s.cache.statusTime(e.ID)
			gone := !has && e.Type != pleg.ContainerStarted
			s.mu.Lock()
			if !gone && (!has || status.Before(s.changed)) {
				s.early = append(s.early, words(e))
			}
			s.last = time.Now()
			s.events[e.ID] = append(s.events[e.ID], words(e))
			s.mu.Unlock()
		case <-stop:
			return
		}
	}
}

// checkCallers checks the statuses that GetNewerThan returned.
func (h *history) checkCallers() {
	for _, s := range h.sides {
		for _, e := range s.early {
			h.t.Errorf("%s: event %q came before the status", s.name, e)
		}
		for _, c := range s.callers {
			last, _ := lastBefore(h.changes[c.uid], c.min.Add(1))
			select {
			case <-c.returned:
				if !last.gone && c.status.TimeStamp.Before(last.at) {
					h.t.Errorf("%s: GetNewerThan(%s, %s) returned a status of %s", s.name, c.uid, clockTime(c.min), clockTime(c.status.TimeStamp))
				}
			default:
				h.t.Fatalf("%s: GetNewerThan(%s, %s) has not returned", s.name, c.uid, clockTime(c.min))
			}
		}
	}
}

// checkEvents compares the events of both generators, and the times of their last events. The
// pipeline may take a quarter of the time of serial inspections, or the time of the longest.
func (h *history) checkEvents(listed time.Time) {
	stock, ours := h.sides[0], h.sides[1]
	for uid := range h.changes {
		if !slices.Equal(stock.events[uid], ours.events[uid]) {
			h.t.Errorf("pod %s: events of GenericPLEG %q, of the pipeline %q", uid, stock.events[uid], ours.events[uid])
		}
	}
	took, limit := ours.last.Sub(listed), h.longest+h.serial/4+tick
	if took > limit || ours.last.After(stock.last.Add(tick)) {
		h.t.Errorf("the last event came after %v, want at most %v; GenericPLEG's last event came after %v", took, limit, stock.last.Sub(listed))
	}
}
