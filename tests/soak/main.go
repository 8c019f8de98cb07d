// Package soak runs the program for a long time beside a container runtime that keeps
// changing, and checks that its events stay correct and its resources stay bounded.
//
// A [Node] is the runtime: it changes its pods, breaks now and then, and knows the
// truth. Two agents, which are processes of the program, follow it: one by polling, one
// by CRI events. Each has four subscribers on its socket: one for all events, one that
// rarely reads, one that disconnects and comes back, and one with filters.
//
// From time to time the node rests. Then the cache of each agent, and the state that each
// subscriber rebuilt from its events, must equal the truth, and the resources of the
// agents are measured. Every event is checked when it comes; see [kit.StreamCheck].
//
// At the end a line is fitted to the second half of the measurements. The soak fails if
// there was a problem, or if a slope exceeds its bound by more than two standard errors.
package soak

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Main is a command that soaks the program beside a node, with the arguments of this
// process. It returns its exit code: 0 if the report is OK. On Ctrl-C the report is
// partial. start gets the seed for the node, and returns the node and a function that
// ends it.
func Main(start func(ctx context.Context, seed uint64) (Node, func(context.Context) error, error)) int {
	var o Options
	flag.DurationVar(&o.Duration, "duration", 30*time.Minute, "duration of the soak")
	flag.DurationVar(&o.RestEvery, "rest-every", 20*time.Second, "time between two comparisons with the truth")
	flag.StringVar(&o.Program, "program", "bin/pleg-pipeline", "path of the program")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "seed of the random changes and faults")
	out := flag.String("out", "", "file for the report as JSON")
	flag.Parse()
	if flag.NArg() > 0 || o.Duration <= 0 || o.RestEvery <= 0 {
		fmt.Fprintln(os.Stderr, "soak: no arguments allowed; -duration and -rest-every must be positive")
		return 2
	}
	o.Out = os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	report, err := run(ctx, o, start)
	if report != nil {
		report.Print(os.Stdout)
		err = errors.Join(err, save(report, *out))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	if !report.OK() {
		return 1
	}
	return 0
}

func run(ctx context.Context, o Options, start func(context.Context, uint64) (Node, func(context.Context) error, error)) (*Report, error) {
	node, end, err := start(ctx, o.Seed)
	if err != nil {
		return nil, err
	}
	report, err := Run(ctx, node, o)
	return report, errors.Join(err, end(ctx))
}

func save(r *Report, path string) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

// Node is a container runtime whose pods change and whose true state is known.
type Node interface {
	// Name is the kind of runtime.
	Name() string
	// Endpoint is the address of its CRI socket.
	Endpoint() string
	// Churn changes pods, and breaks the runtime now and then, until ctx ends. It
	// returns nil once no change is under way and the runtime works. It reports each
	// action by name when it is done; the name of a fault begins with "fault: ".
	Churn(ctx context.Context, report func(action string)) error
	// Truth returns the state of all pods. It is called while they rest.
	Truth(ctx context.Context) (Truth, error)
}

// What a node knows about its pods.
type (
	// Truth is the state of all pods of a node.
	Truth = kit.Truth
	// Pod is the state of one pod.
	Pod = kit.Pod
	// Container is the state of a container or a sandbox.
	Container = kit.Container
)

// settleTimeout is how long agents and subscribers may take to know the truth.
const settleTimeout = 45 * time.Second

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
