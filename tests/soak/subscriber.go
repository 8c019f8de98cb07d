package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// slowTurn is how many rests apart the slow subscriber reads; by then more
	// waits for it than sockets and buffers hold.
	slowTurn = 8
	// slowBuffer is its buffer at the agent.
	slowBuffer = 16
	// filterNamespace is the one that the subscriber with filters wants.
	filterNamespace = "shop"
	// lookTimeout bounds one question about a pod.
	lookTimeout = 10 * time.Second

	shortestVisit, longestVisit = 3 * time.Second, 20 * time.Second
	longestAbsence              = 40 * time.Second
)

// subscriber follows an agent over its socket and mirrors the node.
type subscriber struct {
	name    string
	agent   *agent
	options client.WatchOptions
	mirror  *mirror
	phase   *phase
	rng     *rand.Rand
	slow    bool
	follow  func(context.Context, *subscriber) error
}

func everything(Pod, Container) bool { return true }

func newSubscribers(a *agent, p *phase, seed uint64, problem func(string, ...any)) []*subscriber {
	filtered := func(p Pod, c Container) bool { return p.Namespace == filterNamespace && !c.Sandbox }
	list := []*subscriber{
		{name: "whole", mirror: &mirror{wants: everything, whole: true}, follow: stay},
		{name: "slow", mirror: &mirror{wants: everything}, follow: stay, slow: true, options: client.WatchOptions{Buffer: slowBuffer}},
		{name: "comes and goes", mirror: &mirror{wants: everything}, follow: comeAndGo, options: client.WatchOptions{Bookmarks: true}},
		{
			name: "filters", mirror: &mirror{wants: filtered, whole: true}, follow: stay,
			options: client.WatchOptions{Namespaces: []string{filterNamespace}, OmitSandboxes: true},
		},
	}
	for i, s := range list {
		s.agent, s.phase, s.rng = a, p, rand.New(rand.NewPCG(seed, uint64(i)))
		s.options.Name, s.options.Replay = s.name, true
		s.options.Disconnected = func(error, time.Duration) { s.mirror.broken() }
		s.mirror.problem = func(format string, args ...any) {
			problem("agent (%s), subscriber (%s): %s", a.mode, s.name, fmt.Sprintf(format, args...))
		}
		s.mirror.reset()
	}
	return list
}

// due reports whether the subscriber is to be compared in this rest.
func (s *subscriber) due(rests int) bool { return !s.slow || rests%slowTurn == 0 }

// run follows the agent until ctx ends. An error means that it is refused.
func (s *subscriber) run(ctx context.Context) error {
	s.mirror.look = func(uid pleg.PodUID) (*pleg.PodStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		return s.agent.client.PodStatus(ctx, uid, time.Time{})
	}
	if err := s.follow(ctx, s); err != nil {
		return fmt.Errorf("subscriber (%s) of agent (%s): %w", s.name, s.agent.mode, err)
	}
	return nil
}

// stay is one watch. The slow subscriber waits for its turn at each event.
func stay(ctx context.Context, s *subscriber) error {
	s.mirror.visit()
	for ev, err := range s.agent.client.Watch(ctx, s.options) {
		if err != nil {
			return err
		}
		s.mirror.see(ev)
		for s.slow {
			resting, rests, changed := s.phase.now()
			if resting && s.due(rests) {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// comeAndGo watches for a while, leaves, and resumes where it was or begins
// anew. While the node rests it is there.
func comeAndGo(ctx context.Context, s *subscriber) error {
	for ctx.Err() == nil {
		last, err := s.visit(ctx)
		if err != nil {
			return err
		}
		s.stayAway(ctx)
		s.options.After, s.options.Replay = last, last == nil
		if s.rng.IntN(4) == 0 {
			s.options.After, s.options.Replay = nil, true
		}
		if s.options.Replay {
			s.mirror.begin()
		}
	}
	return nil
}

// visit returns a position behind which the next visit may resume.
func (s *subscriber) visit(ctx context.Context) (*client.Position, error) {
	s.mirror.visit()
	leave := time.Now().Add(shortestVisit + rand.N(longestVisit-shortestVisit))
	var last *client.Position
	for ev, err := range s.agent.client.Watch(ctx, s.options) {
		if err != nil {
			return nil, err
		}
		s.mirror.see(ev)
		resting, _, _ := s.phase.now()
		// A mark has an epoch, and nothing is owed before it.
		if ev.Epoch != "" && ev.Type != pleg.Gap {
			last = &client.Position{Epoch: ev.Epoch, Seq: ev.Seq}
			if !resting && time.Now().After(leave) {
				return last, nil
			}
		}
	}
	return last, nil
}

func (s *subscriber) stayAway(ctx context.Context) {
	timer := time.NewTimer(time.Duration(s.rng.Int64N(int64(longestAbsence))))
	defer timer.Stop()
	for {
		resting, _, changed := s.phase.now()
		if resting {
			return
		}
		select {
		case <-timer.C:
			return
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// visit counts a watch.
func (m *mirror) visit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Visits++
}

// begin forgets everything, as it is told anew.
func (m *mirror) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reset()
}

// broken notes a lost connection. Amid repairs the numbers go back after it.
func (m *mirror) broken() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Breaks++
	if !m.whole {
		m.lastSeq = 0
	}
}
