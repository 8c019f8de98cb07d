// Package load puts daemons and libraries under load, breaks what they depend on, and
// checks that they keep what they promise. Two commands in this folder use it: soak runs two
// daemons for a long time beside a runtime that changes and fails, siege attacks a daemon
// beside hundreds of readers.
//
// A [Run] is common to them. It counts what was done, collects problems, and fails if there are
// any. A load starts daemons with package daemon, checks what its readers get with package promises
// or, if there are many, with [Numbers], applies a table of [Fault], and reports [Times].
package load

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxProblems is the number of problems that ends a run.
	maxProblems = 20
	// recentFaults is how many of the last faults are listed with a problem.
	recentFaults = 8
)

// Run is one run of a load. Its methods are safe for concurrent use.
type Run struct {
	name  string
	out   io.Writer
	began time.Time

	mu       sync.Mutex
	actions  map[string]int
	faults   []string // the last ones
	problems []string
}

// NewRun starts a run that prints what happens.
func NewRun(name string, out io.Writer) *Run {
	return &Run{name: name, out: out, began: time.Now(), actions: make(map[string]int)}
}

// Elapsed returns the time since the start.
func (r *Run) Elapsed() time.Duration { return time.Since(r.began) }

// Did counts an action.
func (r *Run) Did(action string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.actions[action]++
}

// Fault is something that breaks, and that works again when Inject returns.
type Fault struct {
	Name   string
	Inject func(context.Context) error
}

// Break applies a fault.
func (r *Run) Break(ctx context.Context, f Fault) error {
	err := f.Inject(ctx)
	r.Did("fault: " + f.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, time.Now().Format("15:04:05.000 ")+f.Name)
	r.faults = r.faults[max(0, len(r.faults)-recentFaults):]
	if err != nil {
		return fmt.Errorf("fault %q: %w", f.Name, err)
	}
	return nil
}

// Problem adds a problem: the run fails.
func (r *Run) Problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) == maxProblems {
		return
	}
	text := fmt.Sprintf("%v: ", r.Elapsed().Round(time.Second)) + fmt.Sprintf(format, args...)
	if len(r.faults) > 0 {
		text += "\n  last faults: " + strings.Join(r.faults, "; ")
	}
	r.problems = append(r.problems, text)
	fmt.Fprintf(r.out, "%s: PROBLEM: %s\n", r.name, text)
}

// Require adds a problem unless ok.
func (r *Run) Require(ok bool, format string, args ...any) {
	if !ok {
		r.Problem(format, args...)
	}
}

// Problems returns the problems so far.
func (r *Run) Problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.problems...)
}

// Failing reports whether there are so many problems that the run should end.
func (r *Run) Failing() bool { return len(r.Problems()) == maxProblems }

// Actions returns the number of each action.
func (r *Run) Actions() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.actions)
}

// Main runs a command until it returns, or a signal ends its context. It returns the exit
// code: 1 if there was an error or a problem. A second signal kills the process.
func Main(r *Run, do func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", r.name, err)
		return 1
	}
	return min(1, len(r.Problems()))
}

// Sleep waits, and reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Times are how long something took, each time.
type Times []time.Duration

// Quantile returns the time that a share of all times does not exceed; 0 if there are none.
func (t Times) Quantile(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*share))]
}
