package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	// slowTurn is the number of rests between two reads of the slow subscriber. More
	// events come meanwhile than sockets and buffers hold.
	slowTurn = 8
	// filterNamespace is the namespace of the subscriber with filters.
	filterNamespace = "shop"
	// lookTimeout bounds one PodStatus call.
	lookTimeout = 10 * time.Second

	shortestVisit, longestVisit = 3 * time.Second, 20 * time.Second
	longestAbsence              = 40 * time.Second
)

// subscriber follows a daemon over its socket and knows the node from its events.
type subscriber struct {
	name    string
	daemon  *daemon.Daemon
	options client.WatchOptions
	phase   *phase
	rng     *rand.Rand
	slow    bool // it reads only in some rests
	goes    bool // it leaves and comes back

	mu     sync.Mutex      // guards what follows
	stream promises.Stream // since the last check in a rest
	synced bool            // since the last replay began

	events, visits, breaks, compared int
}

func newSubscribers(d *daemon.Daemon, p *phase, seed uint64) []*subscriber {
	filtered := func(p promises.Pod, c promises.Container) bool { return p.Namespace == filterNamespace && !c.Sandbox }
	list := []*subscriber{
		{name: "all"},
		{name: "slow", slow: true},
		{name: "comes and goes", goes: true, options: client.WatchOptions{Bookmarks: true}},
		{
			name: "filters", stream: promises.Stream{Wants: filtered},
			options: client.WatchOptions{Filter: pleg.Filter{Namespaces: []string{filterNamespace}, OmitSandboxes: true}},
		},
	}
	for i, s := range list {
		s.daemon, s.phase, s.rng = d, p, rand.New(rand.NewPCG(seed, uint64(i)))
		s.options.Name, s.options.Replay = s.name, true
		s.stream.Bookmarks, s.stream.Wall = s.options.Bookmarks, true
	}
	return list
}

// String names the subscriber.
func (s *subscriber) String() string {
	return fmt.Sprintf("subscriber (%s) of daemon (%s)", s.name, s.daemon.Name)
}

// due reports whether the subscriber is compared in a rest.
func (s *subscriber) due(rests int) bool { return !s.slow || rests%slowTurn == 0 }

// run follows the daemon until ctx ends. It returns an error if the daemon refuses it.
func (s *subscriber) run(ctx context.Context) error {
	s.stream.State.Look = func(uid pleg.PodUID) (*pleg.PodStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		return s.daemon.Client.PodStatus(ctx, uid, time.Time{})
	}
	for ctx.Err() == nil {
		last, err := s.visit(ctx)
		if err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
		s.stayAway(ctx)
		s.options.After, s.options.Replay = pleg.Position{}, true
		if last != nil && s.rng.IntN(4) != 0 {
			s.options.After, s.options.Replay = *last, false
		}
	}
	return nil
}

// visit watches until ctx ends, or for a while if the subscriber comes and goes; while the
// node rests, it stays. It returns a position from which the next visit may resume. The slow
// subscriber waits for its turn at each event.
func (s *subscriber) visit(ctx context.Context) (*pleg.Position, error) {
	if err := s.startVisit(s.options.Replay); err != nil {
		return nil, err
	}
	leave := time.Now().Add(shortestVisit + rand.N(longestVisit-shortestVisit))
	var last *pleg.Position
	for ev, err := range s.daemon.Watch(ctx, s.options, s.disconnected) {
		if err != nil {
			return nil, err
		}
		s.add(ev) //nolint:contextcheck // Fresh needs no context: it does not wait
		if at, ok := ev.Position(); ok {
			last = &at
			if resting, _, _ := s.phase.now(); s.goes && s.synced && !resting && time.Now().After(leave) {
				return last, nil
			}
		}
		for s.slow && ctx.Err() == nil {
			resting, rests, changed := s.phase.now()
			if resting && s.due(rests) {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
	return last, nil
}

// stayAway waits for a while, but no longer than until the node rests.
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

func (s *subscriber) add(ev pleg.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev.Type {
	case pleg.Gap:
		s.synced = false
	case pleg.Synced:
		s.synced = true
	case pleg.Bookmark:
	default:
		s.events++
	}
	s.stream.Add(ev)
}

// diff says how what the subscriber knows differs from the truth.
func (s *subscriber) diff(truth promises.Truth) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return []string{"it has got no Synced"}
	}
	return s.stream.State.Diff(truth)
}

// check returns the promises that were broken since the last check. The subscriber must
// have everything.
func (s *subscriber) check(truth promises.Truth) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compared++
	s.stream.Truth = truth
	err := s.stream.Check()
	s.stream.Forget()
	s.stream.Truth = nil
	return err
}

// startVisit counts a watch. A watch that resumes continues the stream as after a lost connection.
// If it begins with a replay, the stream before must have kept its promises, and what was known is
// forgotten.
func (s *subscriber) startVisit(replay bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits++
	if !replay {
		s.stream.Breaks = append(s.stream.Breaks, len(s.stream.Events))
		return nil
	}
	err := s.stream.Check()
	s.synced = false
	state := s.stream.State
	state.Reset()
	s.stream = promises.Stream{
		Replay: true, Bookmarks: s.options.Bookmarks, Wall: true, Wants: s.stream.Wants, State: state,
	}
	return err
}

func (s *subscriber) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaks++
	s.stream.Breaks = append(s.stream.Breaks, len(s.stream.Events))
}

func (s *subscriber) report(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &s.stream.State
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.name, s.events, state.Missed, state.Gaps, s.visits, s.breaks, s.compared)
}
