package differ_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// fakeCache records the calls.
type fakeCache struct {
	observed time.Time
	pending  []pleg.PodUID
	touched  map[pleg.PodUID]time.Time
	kept     []*pleg.ContainerStatus
}

func (c *fakeCache) Observe(at time.Time, pending []*pleg.Pod) {
	c.observed, c.pending = at, nil
	for _, pod := range pending {
		c.pending = append(c.pending, pod.UID)
	}
	slices.Sort(c.pending)
}

func (c *fakeCache) Touch(uid pleg.PodUID, at time.Time) { c.touched[uid] = at }

func (c *fakeCache) KeepRemoved(s *pleg.ContainerStatus) { c.kept = append(c.kept, s) }

// fakeLister counts the calls.
type fakeLister struct {
	relists     atomic.Int64
	relistsNow  atomic.Int64
	unannounced int
	// announced has one element for each listing without an unannounced change:
	// whether one was confirmed.
	announced []bool
	// relisted are the pods that are to be listed alone.
	mu       sync.Mutex
	relisted []pleg.PodUID
}

func (l *fakeLister) RelistNow() { l.relistsNow.Add(1) }

func (l *fakeLister) RequestRelist(uid pleg.PodUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.relisted = append(l.relisted, uid)
}

// takeRelisted returns the pods that were to be listed alone since the last call.
func (l *fakeLister) takeRelisted() []pleg.PodUID {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.relisted = nil }()
	return l.relisted
}

func (l *fakeLister) RelistSoon() { l.relists.Add(1) }

func (l *fakeLister) ChangesUnannounced(n int) { l.unannounced += n }

func (l *fakeLister) ChangesAnnounced(confirmed bool) { l.announced = append(l.announced, confirmed) }
