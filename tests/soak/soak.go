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
	// maxProblems ends a soak that goes wrong all the time.
	maxProblems = 20
	// maxFaults is how many of the last faults are told with a problem; a deed
	// is one by its prefix.
	maxFaults   = 8
	faultPrefix = "fault: "
	// maxLines is how much of a difference is told.
	maxLines = 12
	// comparePeriod is how often the agents are looked at in a rest.
	comparePeriod = 100 * time.Millisecond
)

// Options say how long a soak lasts. All are needed.
type Options struct {
	Duration time.Duration
	// RestEvery is the time from the end of a rest to the next.
	RestEvery time.Duration
	// Program is the path of the program under test.
	Program string
	// Seed determines what subscribers do.
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
	deeds    map[string]int
	faults   []string // the last ones, for problems
	problems []string
}

// Run soaks the program until the duration is over or ctx ends, and returns what
// it found; after the end of ctx it is partial. The error says why a soak could
// not go on, and the report is then partial too.
func Run(ctx context.Context, node Node, o Options) (*Report, error) {
	s := &soak{Options: o, node: node, began: time.Now(), phase: newPhase(), deeds: make(map[string]int)}
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

// watched runs the soak with all its subscribers, and tells of its progress.
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

// alternate lets the node churn and rest by turns.
func (s *soak) alternate(ctx context.Context) error {
	for time.Since(s.began) < s.Duration && ctx.Err() == nil && s.failures() < maxProblems {
		churn, cancel := context.WithTimeout(ctx, s.RestEvery)
		err := s.node.Churn(churn, s.did)
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

// rest compares everybody with the truth and measures the agents.
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

// settle waits until everybody has the truth.
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
			s.problem("not true after %v of rest:\n  %s", settleTimeout, strings.Join(diff[:min(len(diff), maxLines)], "\n  "))
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
		known, err := a.client.Pods(ctx)
		if err != nil {
			return nil, fmt.Errorf("agent (%s): %w", a.mode, err)
		}
		add("agent ("+a.mode+")", compareCache(known, truth))
	}
	for _, sub := range s.due() {
		add("subscriber ("+sub.name+") of agent ("+sub.agent.mode+")", sub.mirror.compare(truth))
	}
	return diff, nil
}

func (s *soak) audit(truth Truth) {
	for _, sub := range s.due() {
		sub.mirror.audit(truth)
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

func (s *soak) did(deed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deeds[deed]++
	if strings.HasPrefix(deed, faultPrefix) {
		s.faults = append(s.faults, time.Now().Format("15:04:05.000 ")+deed)
		s.faults = s.faults[max(0, len(s.faults)-maxFaults):]
	}
}

func (s *soak) problem(format string, args ...any) {
	text := fmt.Sprintf("%v: ", time.Since(s.began).Round(time.Second)) + fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < maxProblems {
		if len(s.faults) > 0 {
			text += "\n  until then: " + strings.Join(s.faults, "; ")
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

// told returns a copy of the deeds and the number of all of them.
func (s *soak) told() (deeds map[string]int, sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.deeds {
		sum += n
	}
	return maps.Clone(s.deeds), sum
}
