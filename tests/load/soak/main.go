// Command soak runs two daemons for a long time beside a simulated runtime that keeps changing and
// fails; "make soak" runs it. One daemon polls, the other follows the CRI events. Each has four
// subscribers on its socket: the first gets all events, the second rarely reads, the third
// disconnects and comes back, the fourth has filters. Every promise about their events is checked;
// see package promises.
//
// From time to time the node rests. Then the cache of each daemon, and the state that each
// subscriber rebuilt from its events, must equal the truth, and the resources of the daemons
// are measured. At the end a line is fitted to the second half of the measurements: a slope
// above its bound is a problem. On Ctrl-C the report is partial.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	progressPeriod = 10 * time.Second
	// settleTimeout is how long daemons and subscribers may take to know the truth.
	settleTimeout = 45 * time.Second
	// comparePeriod is the time between two comparisons in a rest.
	comparePeriod = 100 * time.Millisecond
	// maxLines is the number of differences in a problem.
	maxLines = 12
)

// common are the settings of both daemons. The history is short, so that a subscriber cannot
// resume after a long absence.
var common = daemon.Settings{"history": "400", "list-timeout": "3s", "inspect-timeout": "3s", "log-level": "warn"}

var modes = []struct {
	name     string
	settings daemon.Settings
}{
	{"polling", common},
	{"events", common.With(daemon.Settings{"events": "require", "relist-period-with-events": "10s"})},
}

// soak is one run beside a node.
type soak struct {
	*load.Run
	duration time.Duration
	// restEvery is the time from the end of one rest to the start of the next.
	restEvery time.Duration
	// program is the path of the program under test, seed the seed of all that is random.
	program string
	seed    uint64

	node        *node
	phase       *phase
	daemons     []*daemon.Daemon
	subscribers []*subscriber
	samples     map[*daemon.Daemon][]sample // taken in rests
	settled     load.Times
}

func main() {
	s := &soak{phase: newPhase(), samples: make(map[*daemon.Daemon][]sample)}
	flag.DurationVar(&s.duration, "duration", 30*time.Minute, "duration of the soak")
	flag.DurationVar(&s.restEvery, "rest-every", 20*time.Second, "time between two comparisons with the truth")
	flag.StringVar(&s.program, "program", "bin/pleg-pipeline", "path of the program")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random changes and faults")
	flag.Parse()
	if flag.NArg() > 0 || s.duration <= 0 || s.restEvery <= 0 {
		fmt.Fprintln(os.Stderr, "soak: no arguments allowed; -duration and -rest-every must be positive")
		os.Exit(2)
	}
	s.Run = load.NewRun("soak", os.Stderr)
	os.Exit(load.Main(s.Run, s.soak))
}

// soak ends when the duration is over or ctx ends, and prints a report.
func (s *soak) soak(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "pleg-soak-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Fprintf(os.Stderr, "soak: %v with seed %d\n", s.duration, s.seed)
	if s.node, err = startNode(ctx, filepath.Join(dir, "cri.sock"), s.seed); err != nil {
		return err
	}
	err = s.start(ctx, dir)
	if err == nil {
		err = s.run(ctx)
	}
	for _, d := range s.daemons {
		err = errors.Join(err, d.Stop())
	}
	err = errors.Join(err, s.node.stop())
	s.report(os.Stdout, err != nil || ctx.Err() != nil)
	return err
}

func (s *soak) start(ctx context.Context, dir string) error {
	args := []string{"--listen", "127.0.0.1:0", "--runtime-endpoint", s.node.socket}
	for i, mode := range modes {
		d, err := daemon.Start(ctx, daemon.Options{Program: s.program, Dir: dir, Name: mode.name, Args: args, Settings: mode.settings})
		if err != nil {
			return err
		}
		s.daemons = append(s.daemons, d)
		s.subscribers = append(s.subscribers, newSubscribers(d, s.phase, s.seed+uint64(i))...)
	}
	return nil
}

// run alternates churn and rest beside all subscribers, and prints the progress.
func (s *soak) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, partsCtx := errgroup.WithContext(ctx)
	for _, sub := range s.subscribers {
		parts.Go(func() error { return sub.run(partsCtx) })
	}
	parts.Go(func() error {
		for load.Sleep(partsCtx, progressPeriod) {
			fmt.Fprintln(os.Stderr, s.progress(partsCtx))
		}
		return nil
	})
	parts.Go(func() error {
		defer cancel()
		return s.alternate(partsCtx)
	})
	return parts.Wait()
}

// alternate makes the node churn and rest in turn.
func (s *soak) alternate(ctx context.Context) error {
	for s.Elapsed() < s.duration && ctx.Err() == nil && !s.Failing() {
		churn, cancel := context.WithTimeout(ctx, s.restEvery)
		err := s.node.churn(churn, s.Run)
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

// rest compares daemons and subscribers with the truth, and measures the daemons.
func (s *soak) rest(ctx context.Context) error {
	truth := promises.SimulatedTruth(s.node.runtime.Pods())
	s.phase.set(true)
	defer s.phase.set(false)
	if err := s.settle(ctx, truth); err != nil {
		return err
	}
	for _, d := range s.daemons {
		sample, err := s.sample(ctx, d)
		if err != nil {
			return err
		}
		s.samples[d] = append(s.samples[d], sample)
	}
	return nil
}

// settle waits until daemons and subscribers have the truth.
func (s *soak) settle(ctx context.Context, truth promises.Truth) error {
	for began := time.Now(); ; {
		diff, err := s.differences(ctx, truth)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if len(diff) == 0 {
			s.settled = append(s.settled, took)
			for _, sub := range s.due() {
				if err := sub.check(truth); err != nil {
					s.Problem("%v: %v", sub, err)
				}
			}
			return nil
		}
		if took > settleTimeout {
			s.Problem("not settled after %v of rest:\n  %s", settleTimeout, strings.Join(diff[:min(len(diff), maxLines)], "\n  "))
			return nil
		}
		if !load.Sleep(ctx, comparePeriod) {
			return context.Cause(ctx)
		}
	}
}

func (s *soak) differences(ctx context.Context, truth promises.Truth) ([]string, error) {
	var diff []string
	add := func(who string, lines []string) {
		for _, line := range lines {
			diff = append(diff, who+": "+line)
		}
	}
	for _, d := range s.daemons {
		if err := d.Alive(); err != nil {
			return nil, err
		}
		cached, err := d.Cached(ctx)
		if err != nil {
			return nil, fmt.Errorf("daemon (%s): %w", d.Name, err)
		}
		add("daemon ("+d.Name+")", truth.Diff(cached))
	}
	for _, sub := range s.due() {
		add(sub.String(), sub.diff(truth))
	}
	return diff, nil
}

// due returns the subscribers that are compared in this rest.
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

// phase is the state that subscribers wait for: whether the node rests.
type phase struct {
	mu      sync.Mutex
	resting bool
	rests   int           // started so far
	changed chan struct{} // closed when it changes
}

func newPhase() *phase { return &phase{changed: make(chan struct{})} }

func (p *phase) set(resting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting = resting
	if resting {
		p.rests++
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// now returns whether the node rests, the number of rests so far, and a channel that is
// closed at the next change.
func (p *phase) now() (resting bool, rests int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resting, p.rests, p.changed
}
