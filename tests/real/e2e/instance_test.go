//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// callTimeout bounds a call of an instance, which may be stopped.
const callTimeout = time.Second

// arrival is an event and the time at which it came.
type arrival struct {
	pleg.Event
	at time.Time
}

// instance is one daemon under test, with the events that it delivered.
type instance struct {
	*daemon.Daemon
	name string

	// criEvents, if not nil, contains the exit codes that CRI events carried. The instance need not
	// know other exit codes.
	criEvents *criEvents

	// paused is the time in which the instance itself did not run.
	paused outage

	mu       sync.Mutex         // guards the fields below
	steps    map[string]arrival // the first event of each step, by stepKey
	stream   promises.Stream
	problems []error
}

func newInstance(name string) *instance {
	return &instance{
		name: name, steps: make(map[string]arrival), stream: promises.Stream{Replay: true, Wall: true},
	}
}

// static builds a program that runs in any container.
const static = "-tags=netgo,osusergo"

// instanceOptions say how to run an instance.
type instanceOptions struct {
	name     string
	settings daemon.Settings
	// follows: the fault waits until the instance follows the CRI events, if there are any.
	follows bool
	// release runs the program as it is released, for a measurement: without the race detector,
	// which takes many times as much memory and delays the end of every container by 1 s.
	release bool
	// alone hides the processes of the machine from the daemon.
	alone bool
}

var (
	// polling relists more often than the default, so that the tests are faster.
	polling = daemon.Settings{"relist-period": relistPeriod.String()}
	// rareLists makes CRI events the only source of changes, except for changes that a runtime does
	// not announce.
	rareLists = daemon.Settings{"events": "auto", "relist-period": "1s", "relist-period-with-events": "1h", "relist-threshold": "3h"}
)

// relistPeriod is the relist period of instances that poll.
const relistPeriod = 200 * time.Millisecond

// run runs a daemon on the lab until the test ends, when it must exit with code 0.
func (f *fixture) run(ctx context.Context, o instanceOptions) *instance {
	t := f.t
	t.Helper()
	flags := "-race"
	if o.release {
		flags = static
	}
	path, err := process.Program(flags)
	must(t, err)
	if o.alone {
		path = hideProcesses(t, path)
	}
	in := newInstance(o.name)
	in.Daemon, err = daemon.Start(ctx, daemon.Options{
		Program: path, Dir: process.Dir(t), Name: strings.ReplaceAll(o.name, " ", "-"), Settings: o.settings,
		Args: []string{"--listen", "127.0.0.1:0", "--runtime-endpoint", f.lab.Endpoint()},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := in.Stop(); err != nil {
			t.Error(err)
		}
		in.check(t)
		if t.Failed() {
			t.Logf("log of %s:\n%s", in.name, in.Tail())
		}
	})
	f.watch(ctx, in, pleg.SubscribeOptions{Name: "e2e", Replay: true}, in.add)
	f.instances = append(f.instances, in)
	return in
}

// watch calls add for each event of an instance until the test ends.
func (f *fixture) watch(ctx context.Context, in *instance, o pleg.SubscribeOptions, add func(pleg.Event)) {
	f.background(ctx, func(ctx context.Context) {
		for ev, err := range in.Watch(ctx, o, in.disconnected) {
			if err != nil {
				in.problem(err)
				return
			}
			add(ev)
		}
	})
}

func (in *instance) status(ctx context.Context) (pleg.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return in.Client.Status(ctx)
}

func (in *instance) cached(ctx context.Context) ([]cache.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return in.Cached(ctx)
}

// metric returns the value of a metric, which is zero before it is set.
func (in *instance) metric(ctx context.Context, t *testing.T, name string) float64 {
	t.Helper()
	values, err := in.Metrics(ctx)
	must(t, err)
	return values[name]
}

// awaitHealth waits until the instance reports that it is healthy.
func (in *instance) awaitHealth(ctx context.Context) error {
	return await(ctx, func() error {
		status, err := in.status(ctx)
		if err != nil || !status.Healthy {
			return errors.Join(fmt.Errorf("%s: not healthy", in.name), err, status.Err)
		}
		return nil
	})
}

// awaitStream waits until the instance follows the CRI events, so that lists become rare.
func (in *instance) awaitStream(ctx context.Context) error {
	return eventually(ctx, func() bool {
		status, err := in.status(ctx)
		return err == nil && status.Relist.Period > time.Second && status.Relist.Started.IsZero()
	})
}

// diffLists returns how the states that the instance knows differ from the CRI lists.
func (in *instance) diffLists(ctx context.Context, l *lab.Lab) error {
	entries, knownErr := in.cached(ctx)
	states, err := listed(ctx, l)
	if err := errors.Join(knownErr, err); err != nil {
		return err
	}
	known := make(map[pleg.ContainerID]pleg.State)
	for _, pod := range promises.CachedTruth(entries) {
		for id, c := range pod.Containers {
			known[id] = c.State
		}
	}
	if !maps.Equal(known, states) {
		return fmt.Errorf("%s: knows %v, the runtime lists %v", in.name, known, states)
	}
	return nil
}

// add stores an event.
func (in *instance) add(ev pleg.Event) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stream.Add(ev)
	if ev.PodUID == "" {
		return
	}
	if ev.ObservedAt.IsZero() || ev.ObservedAt.After(time.Now()) {
		in.problems = append(in.problems, fmt.Errorf("%s: observed at %v", describe(ev), ev.ObservedAt))
	}
	key := stepKey(string(ev.ContainerID), lab.Step(strings.TrimPrefix(string(ev.Type), "Container")))
	if _, ok := in.steps[key]; !ok {
		in.steps[key] = arrival{ev, time.Now()}
	}
}

// stepKey is the key of a step of a container or sandbox.
func stepKey(id string, step lab.Step) string { return id + " " + string(step) }

func (in *instance) disconnected() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stream.Breaks = append(in.stream.Breaks, len(in.stream.Events))
}

func (in *instance) problem(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.problems = append(in.problems, err)
}

// countEvents returns the number of events of pods.
func (in *instance) countEvents(pods ...*lab.Pod) (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, ev := range in.stream.Events {
		if slices.ContainsFunc(pods, func(p *lab.Pod) bool { return podUID(p) == ev.PodUID }) {
			n++
		}
	}
	return n
}

// checkStream checks the promises against the events so far. pods is the true state, cached that of
// the instance; cached is nil once the instance has ended.
func (in *instance) checkStream(pods promises.Truth, cached []cache.Entry) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.stream
	s.Truth, s.Cached, s.NoSync = pods, cached, true
	return s.Check()
}

// reported returns when the instance delivered a step; the zero time if it did not.
func (in *instance) reported(id string, step lab.Step) time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.steps[stepKey(id, step)].at
}

// reportedEnd reports whether the instance delivered the end of a container or sandbox.
func (in *instance) reportedEnd(id string) bool { return !in.reported(id, lab.Died).IsZero() }

// check fails the test if there was a problem, or if a promise was broken.
func (in *instance) check(t *testing.T) {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := errors.Join(errors.Join(in.problems...), in.stream.Check()); err != nil {
		t.Errorf("%s: %v", in.name, err)
	}
}
