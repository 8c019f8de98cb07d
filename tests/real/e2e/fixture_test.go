//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// podsAtOnce is the number of pods that one step changes at the same time. The
// runtime does not get faster with more.
const podsAtOnce = 16

// fixture is a lab with pods, and the instances whose events and states must equal the
// history of the lab.
type fixture struct {
	t         *testing.T
	lab       *lab.Lab
	pods      []*lab.Pod
	instances []*instance
	// timeout bounds awaitAll.
	timeout time.Duration

	// checked: the check after the fault of a row of the fault matrix has run.
	checked    bool
	faultBegan time.Time
}

// newFixture starts a lab. It is removed when the test ends, also by Ctrl-C.
func newFixture(t *testing.T, o lab.Options) (context.Context, *fixture) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	t.Cleanup(stop)
	l, err := lab.Start(ctx, o)
	must(t, err)
	t.Cleanup(func() {
		if err := l.Stop(ctx); err != nil {
			t.Errorf("stop lab: %v", err)
		}
	})
	return ctx, &fixture{t: t, lab: l, timeout: stepTimeout}
}

// background calls do in a goroutine, whose context ends with the test.
func (f *fixture) background(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// pipeline runs a pipeline in this process.
func (f *fixture) pipeline(ctx context.Context, o pipeline.Options) *pipeline.Pipeline {
	f.t.Helper()
	runtime, err := cri.New(f.lab.Endpoint(), cri.Options{})
	must(f.t, err)
	f.t.Cleanup(func() { _ = runtime.Close() })
	o.Runtime = runtime
	pipe, err := pipeline.New(o)
	must(f.t, err)
	f.background(ctx, func(ctx context.Context) { _ = pipe.Run(ctx) })
	return pipe
}

// runPods creates n pods in two namespaces and awaits their events. Two in three
// use the host's network, because a bridge takes long to set up.
func (f *fixture) runPods(ctx context.Context, n int) {
	f.t.Helper()
	specs := make([]lab.PodSpec, n)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprintf("pod-%d", i), Namespace: []string{"shop", "batch"}[i%2], HostNetwork: i%3 != 0}
	}
	pods, err := f.lab.RunPods(ctx, specs)
	must(f.t, err)
	f.pods = append(f.pods, pods...)
	f.awaitAll(ctx)
}

// runContainers starts a container in each pod and awaits the events.
func (f *fixture) runContainers(ctx context.Context, spec func(i int) lab.ContainerSpec) {
	f.t.Helper()
	f.forEachPod(ctx, func(ctx context.Context, i int, p *lab.Pod) error {
		_, err := f.lab.RunContainer(ctx, p, spec(i))
		return err
	})
}

// mainExits is the container "main" that ends with the number of its pod.
func mainExits(i int) lab.ContainerSpec {
	return lab.ContainerSpec{Name: "main", Program: lab.Exit(uint8(i))}
}

// triggerAll ends the newest container of each pod.
func (f *fixture) triggerAll(ctx context.Context) {
	f.t.Helper()
	f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.Trigger(ctx, newest(p)) })
}

func (f *fixture) stopPods(ctx context.Context) {
	f.t.Helper()
	f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.StopPod(ctx, p) })
}

func (f *fixture) removePods(ctx context.Context) {
	f.t.Helper()
	f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return f.lab.RemovePod(ctx, p) })
}

func newest(p *lab.Pod) *lab.Container {
	containers := p.Containers()
	return containers[len(containers)-1]
}

// oldest returns the first container of a pod that is still there.
func oldest(p *lab.Pod) *lab.Container { return p.Containers()[0] }

func podUID(p *lab.Pod) pleg.PodUID { return pleg.PodUID(p.UID) }

// forEachPod does one step with many pods at the same time and awaits the events.
func (f *fixture) forEachPod(ctx context.Context, step func(context.Context, int, *lab.Pod) error) {
	f.t.Helper()
	f.step(ctx, f.concurrently(ctx, step))
}

// step fails the test after an error, and awaits the events of a step.
func (f *fixture) step(ctx context.Context, err error) {
	f.t.Helper()
	must(f.t, err)
	f.awaitAll(ctx)
}

// runContainer starts a container.
func (f *fixture) runContainer(ctx context.Context, p *lab.Pod, spec lab.ContainerSpec) *lab.Container {
	f.t.Helper()
	c, err := f.lab.RunContainer(ctx, p, spec)
	must(f.t, err)
	return c
}

// changeContainers starts, ends and removes a container in each pod, and awaits
// each step.
func (f *fixture) changeContainers(ctx context.Context, attempt uint32) {
	f.t.Helper()
	f.runContainers(ctx, func(int) lab.ContainerSpec {
		return lab.ContainerSpec{Name: "side", Attempt: attempt, Program: lab.Exit(3)}
	})
	f.triggerAll(ctx)
	f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return removeDead(ctx, f.lab, newest(p)) })
}

// removeDead removes a container whose process is gone but whose shim may still
// run.
func removeDead(ctx context.Context, l *lab.Lab, c *lab.Container) error {
	return await(ctx, func() error { return l.RemoveContainer(ctx, c) })
}

// concurrently does one step with many pods at the same time.
func (f *fixture) concurrently(ctx context.Context, step func(context.Context, int, *lab.Pod) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(podsAtOnce)
	for i, p := range f.pods {
		g.Go(func() error { return step(ctx, i, p) })
	}
	return g.Wait()
}

// awaitAll returns once the events and the state of every instance equal the history. If it
// is called after every step, it proves the order of the events of all pods.
func (f *fixture) awaitAll(ctx context.Context) {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("incomplete after %v", f.timeout))
	defer cancel()
	var g errgroup.Group
	for _, in := range f.instances {
		g.Go(func() error {
			return process.Await(ctx, func(ctx context.Context) error { return f.diff(ctx, in) })
		})
	}
	must(f.t, g.Wait())
}

// diff returns how an instance differs from the history: its events, the state that follows
// from them, or its cache.
func (f *fixture) diff(ctx context.Context, in *instance) error {
	if err := in.diffSteps(f.lab.History().All()); err != nil {
		return err
	}
	var known []cache.Entry
	if in.Daemon != nil { // every other source has ended
		var err error
		if known, err = in.cached(ctx); err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
	}
	if err := in.checkStream(truthOf(f.lab), known); err != nil {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	return nil
}
