package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	progressPeriod = 10 * time.Second
	// maxProblems is the number of problems that ends a soak.
	maxProblems = 20
	// maxFaults is how many of the last faults are listed with a problem.
	// faultPrefix distinguishes them from other actions.
	maxFaults   = 8
	faultPrefix = "fault: "
	// maxLines is the number of differences in a problem.
	maxLines = 12
	// comparePeriod is the time between two comparisons in a rest.
	comparePeriod = 100 * time.Millisecond
)

// Options configure a soak. All fields are required.
type Options struct {
	Duration time.Duration
	// RestEvery is the time from the end of a rest to the next.
	RestEvery time.Duration
	// Program is the path of the program under test.
	Program string
	// Seed determines what the subscribers do.
	Seed uint64
	// Out gets a line of progress every 10 s.
	Out io.Writer
}

// soak is one run.
type soak struct {
	Options
	node        Node
	began       time.Time
	phase       *phase
	agents      []*agent
	subscribers []*subscriber
	samples     [][]Sample // of each agent, taken in rests
	settled     []time.Duration

	mu       sync.Mutex // guards what follows
	actions  map[string]int
	faults   []string // the last ones
	problems []string
}

// Run soaks the program until the duration is over or ctx ends, and returns a report. If
// ctx ends or the soak cannot go on, which the error explains, the report is partial.
func Run(ctx context.Context, node Node, o Options) (*Report, error) {
	s := &soak{Options: o, node: node, began: time.Now(), phase: newPhase(), actions: make(map[string]int)}
	dir, err := os.MkdirTemp("", "pleg-soak-")
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Fprintf(o.Out, "soak %s: %v with seed %d\n", node.Name(), o.Duration, o.Seed)
	err = s.start(ctx, dir)
	if err == nil {
		err = s.watched(ctx)
	}
	for _, a := range s.agents {
		err = errors.Join(err, a.stop(ctx))
	}
	r := s.report(err != nil || ctx.Err() != nil)
	if err != nil {
		return r, fmt.Errorf("soak: %w", err)
	}
	return r, nil
}

func (s *soak) start(ctx context.Context, dir string) error {
	for i, m := range modes {
		a, err := startAgent(ctx, s.Program, dir, s.node.Endpoint(), m)
		if err != nil {
			return err
		}
		s.agents = append(s.agents, a)
		s.subscribers = append(s.subscribers, newSubscribers(a, s.phase, s.Seed+uint64(i), s.problem)...)
	}
	s.samples = make([][]Sample, len(s.agents))
	return nil
}

// watched runs the soak with all its subscribers and prints its progress.
func (s *soak) watched(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, partsCtx := errgroup.WithContext(ctx)
	for _, sub := range s.subscribers {
		parts.Go(func() error { return sub.run(partsCtx) })
	}
	parts.Go(func() error { s.progress(partsCtx); return nil })
	parts.Go(func() error {
		defer cancel()
		return s.alternate(partsCtx)
	})
	return parts.Wait()
}

// alternate makes the node churn and rest in turn.
func (s *soak) alternate(ctx context.Context) error {
	for time.Since(s.began) < s.Duration && ctx.Err() == nil && s.failures() < maxProblems {
		churn, cancel := context.WithTimeout(ctx, s.RestEvery)
		err := s.node.Churn(churn, s.countAction)
		cancel()
		if err == nil && ctx.Err() == nil {
			err = s.rest(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rest compares agents and subscribers with the truth, and measures the agents.
func (s *soak) rest(ctx context.Context) error {
	truth, err := s.node.Truth(ctx)
	if err != nil {
		return fmt.Errorf("truth of the node: %w", err)
	}
	s.phase.set(true)
	defer s.phase.set(false)
	if err := s.settle(ctx, truth); err != nil {
		return err
	}
	for i, a := range s.agents {
		sample, err := s.measure(ctx, a)
		if err != nil {
			return err
		}
		s.samples[i] = append(s.samples[i], sample)
	}
	return nil
}

// settle waits until agents and subscribers have the truth.
func (s *soak) settle(ctx context.Context, truth Truth) error {
	began := time.Now()
	ticker := time.NewTicker(comparePeriod)
	defer ticker.Stop()
	for {
		diff, err := s.differences(ctx, truth)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if len(diff) == 0 {
			s.settled = append(s.settled, took)
			s.audit(truth)
			return nil
		}
		if took > settleTimeout {
			s.problem("not settled after %v of rest:\n  %s", settleTimeout, strings.Join(diff[:min(len(diff), maxLines)], "\n  "))
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *soak) differences(ctx context.Context, truth Truth) ([]string, error) {
	var diff []string
	add := func(who string, lines []string) {
		for _, line := range lines {
			diff = append(diff, who+": "+line)
		}
	}
	for _, a := range s.agents {
		if err := a.alive(); err != nil {
			return nil, err
		}
		known, err := a.pods(ctx)
		if err != nil {
			return nil, fmt.Errorf("agent (%s): %w", a.mode, err)
		}
		add("agent ("+a.mode+")", truth.Diff(known))
	}
	for _, sub := range s.due() {
		add("subscriber ("+sub.name+") of agent ("+sub.agent.mode+")", sub.view.diff(truth))
	}
	return diff, nil
}

func (s *soak) audit(truth Truth) {
	for _, sub := range s.due() {
		sub.view.audit(truth)
	}
}

func (s *soak) due() []*subscriber {
	_, rests, _ := s.phase.now()
	var due []*subscriber
	for _, sub := range s.subscribers {
		if sub.due(rests) {
			due = append(due, sub)
		}
	}
	return due
}

func (s *soak) measure(ctx context.Context, a *agent) (Sample, error) {
	sample, err := scrape(ctx, a.http, a.url)
	sample.At = time.Since(s.began)
	return sample, err
}

func (s *soak) countAction(action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions[action]++
	if strings.HasPrefix(action, faultPrefix) {
		s.faults = append(s.faults, time.Now().Format("15:04:05.000 ")+action)
		s.faults = s.faults[max(0, len(s.faults)-maxFaults):]
	}
}

func (s *soak) problem(format string, args ...any) {
	text := fmt.Sprintf("%v: ", time.Since(s.began).Round(time.Second)) + fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < maxProblems {
		if len(s.faults) > 0 {
			text += "\n  last faults: " + strings.Join(s.faults, "; ")
		}
		s.problems = append(s.problems, text)
		fmt.Fprintf(s.Out, "soak %s: PROBLEM: %s\n", s.node.Name(), text)
	}
}

func (s *soak) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.problems)
}

// actionCounts returns the number of each action, and their sum.
func (s *soak) actionCounts() (actions map[string]int, sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.actions {
		sum += n
	}
	return maps.Clone(s.actions), sum
}
