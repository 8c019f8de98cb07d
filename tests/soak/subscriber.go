package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	// slowTurn is the number of rests between two reads of the slow subscriber. More
	// events come meanwhile than sockets and buffers hold.
	slowTurn = 8
	// slowBuffer is its buffer at the agent.
	slowBuffer = 16
	// filterNamespace is the namespace of the subscriber with filters.
	filterNamespace = "shop"
	// lookTimeout bounds one PodStatus call.
	lookTimeout = 10 * time.Second

	shortestVisit, longestVisit = 3 * time.Second, 20 * time.Second
	longestAbsence              = 40 * time.Second
)

// subscriber follows an agent over its socket.
type subscriber struct {
	name    string
	agent   *agent
	options client.WatchOptions
	view    *view
	phase   *phase
	rng     *rand.Rand
	slow    bool
	follow  func(context.Context, *subscriber) error
}

func newView(wants func(Pod, Container) bool, p kit.Promise) *view {
	return &view{state: kit.NodeState{Wants: wants}, check: kit.NewStreamCheck(p, nil)}
}

func newSubscribers(a *agent, p *phase, seed uint64, problem func(string, ...any)) []*subscriber {
	filtered := func(p Pod, c Container) bool { return p.Namespace == filterNamespace && !c.Sandbox }
	list := []*subscriber{
		{name: "all", view: newView(nil, kit.Promise{}), follow: stay},
		{name: "slow", view: newView(nil, kit.Promise{MayMiss: true}), follow: stay, slow: true, options: client.WatchOptions{Buffer: slowBuffer}},
		{name: "comes and goes", view: newView(nil, kit.Promise{MayMiss: true}), follow: comeAndGo, options: client.WatchOptions{Bookmarks: true}},
		{
			name: "filters", view: newView(filtered, kit.Promise{}), follow: stay,
			options: client.WatchOptions{Namespaces: []string{filterNamespace}, OmitSandboxes: true},
		},
	}
	for i, s := range list {
		s.agent, s.phase, s.rng = a, p, rand.New(rand.NewPCG(seed, uint64(i)))
		s.options.Name, s.options.Replay = s.name, true
		s.options.Disconnected = func(error, time.Duration) { s.view.disconnected() }
		s.view.check.Problem = func(format string, args ...any) {
			problem("agent (%s), subscriber (%s): %s", a.mode, s.name, fmt.Sprintf(format, args...))
		}
	}
	return list
}

// due reports whether the subscriber is compared in this rest.
func (s *subscriber) due(rests int) bool { return !s.slow || rests%slowTurn == 0 }

// run follows the agent until ctx ends. It returns an error if the agent refuses it.
func (s *subscriber) run(ctx context.Context) error {
	s.view.state.Look = func(uid pleg.PodUID) (*pleg.PodStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		return s.agent.client.PodStatus(ctx, uid, time.Time{})
	}
	if err := s.follow(ctx, s); err != nil {
		return fmt.Errorf("subscriber (%s) of agent (%s): %w", s.name, s.agent.mode, err)
	}
	return nil
}

// stay watches until ctx ends. The slow subscriber waits for its turn at each event.
func stay(ctx context.Context, s *subscriber) error {
	s.view.startVisit(false)
	for ev, err := range s.agent.client.Watch(ctx, s.options) {
		if err != nil {
			return err
		}
		s.view.add(ev)
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

// comeAndGo watches for a while, leaves, and then resumes or starts with a replay. While
// the node rests, it watches.
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
	}
	return nil
}

// visit watches for a while and returns a position from which the next visit may resume.
func (s *subscriber) visit(ctx context.Context) (*client.Position, error) {
	s.view.startVisit(s.options.Replay)
	leave := time.Now().Add(shortestVisit + rand.N(longestVisit-shortestVisit))
	var last *client.Position
	for ev, err := range s.agent.client.Watch(ctx, s.options) {
		if err != nil {
			return nil, err
		}
		s.view.add(ev)
		resting, _, _ := s.phase.now()
		if at, ok := ev.Position(); ok {
			last = &at
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

// counts are what a subscriber got.
type counts struct {
	Events   int    `json:"events"`
	Repairs  int    `json:"repairs"`
	Missed   uint64 `json:"missed"`
	Gaps     int    `json:"gaps"`
	Visits   int    `json:"visits"`
	Breaks   int    `json:"breaks"`
	Compared int    `json:"compared"`
}

// view is what one subscriber knows of the node, and the check of its stream.
type view struct {
	mu     sync.Mutex
	counts counts
	state  kit.NodeState
	check  *kit.StreamCheck
}

func (v *view) add(ev pleg.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ev.PodUID != "" {
		v.counts.Events++
	}
	v.check.Add(ev)
	v.state.Add(ev)
}

func (v *view) diff(truth Truth) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.Diff(truth)
}

func (v *view) audit(truth Truth) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts.Compared++
	v.check.Audit(truth, v.state.Wants)
}

// startVisit counts a watch. If it begins with a replay, the view is reset.
func (v *view) startVisit(replay bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts.Visits++
	if replay {
		v.state.Reset()
		v.check.Reset()
	}
}

func (v *view) disconnected() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts.Breaks++
	v.check.Reconnected()
}

func (v *view) report() counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts.Repairs, v.counts.Missed, v.counts.Gaps = v.state.Repairs, v.state.Missed, v.state.Gaps
	return v.counts
}
