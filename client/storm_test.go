package client_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// mirror is what one watch makes of its events: whether each container runs.
type mirror struct {
	bed      *bed
	slowness time.Duration
	rng      *rand.Rand
	pods     map[pleg.PodUID]map[pleg.ContainerID]bool
	gaps     int
	repairs  int
}

func (m *mirror) see(ev pleg.Event) {
	switch ev.Type {
	case pleg.Gap:
		m.gaps++
		clear(m.pods)
	case pleg.PodSync:
		m.repairs++
		status, _ := m.bed.pipe.Cache().Get(ev.PodUID)
		m.pods[ev.PodUID] = make(map[pleg.ContainerID]bool)
		for _, c := range status.Containers {
			m.pods[ev.PodUID][c.ID] = c.State == pleg.StateRunning
		}
	case pleg.ContainerStarted, pleg.ContainerDied:
		if m.pods[ev.PodUID] == nil {
			m.pods[ev.PodUID] = make(map[pleg.ContainerID]bool)
		}
		m.pods[ev.PodUID][ev.ContainerID] = ev.Type == pleg.ContainerStarted
	case pleg.ContainerRemoved:
		delete(m.pods[ev.PodUID], ev.ContainerID)
	}
	if m.slowness > 0 {
		time.Sleep(time.Duration(m.rng.Int64N(int64(m.slowness))))
	}
}

// However often connections are cut and the server is restarted, what each
// watch believes in the end equals the cache.
func TestWatchStorm(t *testing.T) {
	gaps, repairs := 0, 0
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, m := range watchStorm(t, seed) {
					m.judge(t)
					gaps += m.gaps
					repairs += m.repairs
				}
			})
		})
	}
	if gaps == 0 || repairs == 0 {
		t.Errorf("%d gaps and %d repairs: the test does not test much", gaps, repairs)
	}
}

func watchStorm(t *testing.T, seed uint64) []*mirror {
	rng := rand.New(rand.NewPCG(seed, 3))
	b := newBed(t, pipeline.Options{History: 1000})
	var mirrors []*mirror
	for i := range 6 {
		m := &mirror{
			bed: b, slowness: time.Duration(i%3) * 15 * time.Millisecond, rng: rand.New(rand.NewPCG(seed, uint64(i))),
			pods: make(map[pleg.PodUID]map[pleg.ContainerID]bool),
		}
		mirrors = append(mirrors, m)
		b.watch(client.WatchOptions{Replay: true, Buffer: 20}, m.see)
	}
	for round := range 40 {
		for range 40 {
			uid := pleg.PodUID(fmt.Sprintf("p%d", rng.IntN(50)))
			words := ""
			for c := range 6 {
				if rng.IntN(2) == 0 {
					words += fmt.Sprintf(" c%d-%d=%s", round/(1+c), c, []string{"running", "exited"}[rng.IntN(2)])
				}
			}
			b.node.Set(uid, words)
		}
		switch rng.IntN(8) {
		case 0, 1:
			b.cut()
		case 2:
			b.endServ()
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			b.startServer(server.Options{})
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
	}
	b.relist(5 * 60)
	return mirrors
}

func (m *mirror) judge(t *testing.T) {
	t.Helper()
	for _, e := range m.bed.pipe.Cache().List() {
		want := make(map[pleg.ContainerID]bool)
		for _, c := range e.Status.Containers {
			want[c.ID] = c.State == pleg.StateRunning
		}
		if !maps.Equal(m.pods[e.UID], want) {
			t.Errorf("slowness %v: pod %s has %v, the cache %v", m.slowness, e.UID, m.pods[e.UID], want)
		}
		delete(m.pods, e.UID)
	}
	for uid, left := range m.pods {
		if len(left) > 0 {
			t.Errorf("slowness %v: pod %s has %v, but is gone", m.slowness, uid, left)
		}
	}
}
