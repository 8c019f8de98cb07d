package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// The daemon and programs that store their position are killed at random events. With the
// default history, a program loses no end of a container after its first position, and gets no
// event twice after the last one.
func TestKillsLoseNoEnd(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(_ *testing.T, f *fixture) { f.kill(seed) })
		})
	}
}

func (f *fixture) kill(seed uint64) {
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	killDaemon := make(chan struct{}, 1)
	var programs []*program
	var running sync.WaitGroup
	for i := range 3 {
		p := &program{
			t: f.T, rng: rand.New(rand.NewPCG(seed, uint64(i))), slow: time.Duration(i) * 10 * time.Millisecond,
			died: make(map[pleg.ContainerID]bool), killDaemon: killDaemon,
		}
		programs = append(programs, p)
		running.Go(func() { p.live(ctx, f) })
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	f.runtime.SetInspectFault(plegtest.Delay(30 * time.Millisecond)) // some events are in flight at a kill
	lives, ended, kills := make([]int, 30), make(map[pleg.ContainerID]time.Time), 0
	for range 400 {
		pod := rng.IntN(len(lives))
		id := func() string { return fmt.Sprintf("c%d-%d", pod, lives[pod]) }
		switch end, exited := ended[pleg.ContainerID(id())]; {
		case lives[pod] == 0 || time.Since(end) > time.Minute && exited: // longer than the daemon or a program is away
			lives[pod]++
			f.runtime.Set(kit.UIDs(pod + 1)[pod], id()+"=running")
		case !exited:
			f.runtime.Set(kit.UIDs(pod + 1)[pod], id()+"=exited")
			ended[pleg.ContainerID(id())] = time.Now()
		}
		select {
		case <-killDaemon:
			kills++
			f.breakConnections()
			f.endServer()
			_ = f.pipe.Stop()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			f.startPipeline()
			f.startServer()
		case <-time.After(time.Duration(rng.IntN(1000)) * time.Millisecond):
		}
	}
	kit.Relist(120)
	cancel()
	running.Wait()
	for i, p := range programs {
		for id, at := range ended {
			if at.After(p.since) && !p.died[id] {
				f.Errorf("program %d never got the end of %s, which was %v after its first position", i, id, at.Sub(p.since))
			}
		}
		for _, line := range p.state.Diff(promises.CachedTruth(f.pipe.Cache().List())) {
			f.Errorf("program %d: %s", i, line)
		}
		if p.kills == 0 {
			f.Errorf("program %d was never killed", i)
		}
	}
	if kills == 0 || len(ended) < 50 {
		f.Errorf("the daemon was killed %d times, and %d containers ended: too few for this test", kills, len(ended))
	}
}

// program stores its position together with its state, as docs/subscriptions.md says.
type program struct {
	t          *testing.T
	rng        *rand.Rand
	slow       time.Duration // longest time for an event
	killDaemon chan<- struct{}
	kills      int

	at    pleg.Position
	since time.Time // the time at which the program stored its first position
	state promises.State
	died  map[pleg.ContainerID]bool
}

// live starts the program again whenever it was killed.
func (p *program) live(ctx context.Context, f *fixture) {
	for ctx.Err() == nil {
		c := f.newClient(nil)
		events := 1 + p.rng.IntN(100)
		for ev, err := range c.Watch(ctx, pleg.SubscribeOptions{After: p.at, Replay: p.at == pleg.Position{}}) {
			if err != nil {
				p.t.Error(err)
			}
			if events--; events == 0 {
				p.kills++
				break // before it has handled the event
			}
			p.handle(ev)
		}
		c.Close()
		time.Sleep(time.Duration(p.rng.IntN(2000)) * time.Millisecond)
	}
}

func (p *program) handle(ev pleg.Event) {
	old := ev.Epoch == p.at.Epoch && ev.Seq <= p.at.Seq
	if ev.ContainerID != "" && old || ev.Type == pleg.Gap && ev.Epoch == p.at.Epoch {
		p.t.Errorf("%v after the position %v", ev, p.at)
	}
	p.state.Add(ev)
	if ev.Type == pleg.ContainerDied {
		p.died[ev.ContainerID] = true
	}
	if at, ok := ev.Position(); ok {
		p.at = at
		if p.since.IsZero() {
			p.since = time.Now()
		}
	}
	if p.slow > 0 {
		time.Sleep(time.Duration(p.rng.Int64N(int64(p.slow))))
	}
	if p.rng.IntN(100) == 0 {
		select {
		case p.killDaemon <- struct{}{}:
		default:
		}
	}
}
