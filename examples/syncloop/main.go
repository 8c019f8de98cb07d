// Command syncloop shows a loop that acts on events, as the kubelet does: it syncs pods
// that changed, cleans up containers that exited, syncs all pods from time to time, and
// does nothing while the pipeline is unhealthy.
//
//	syncloop unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: syncloop ENDPOINT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1], os.Stdout, log); err != nil {
		log.Error("syncloop failed", "err", err)
		os.Exit(1)
	}
}

// run syncs pods until ctx ends.
func run(ctx context.Context, endpoint string, out io.Writer, log *slog.Logger) error {
	runtime, err := cri.New(endpoint, cri.Options{Logger: log})
	if err != nil {
		return err
	}
	defer runtime.Close()
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, Logger: log})
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{Name: "syncloop"})
	if err != nil {
		return err
	}
	l := &loop{healthy: p.Healthy, cache: p.Cache(), events: sub.Events(), out: out}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error { return l.run(ctx) })
	return tasks.Wait()
}

const (
	// unhealthyPause is the time after which the loop asks again whether the pipeline is
	// healthy. The answer costs the runtime no call.
	unhealthyPause = time.Second
	// resyncPeriod is the time between two syncs of all pods. They find what no
	// event reports, such as a failed probe.
	resyncPeriod = 10 * time.Second
)

// loop prints what it would do.
type loop struct {
	healthy func() (bool, error)
	cache   cache.Reader
	events  <-chan pleg.Event
	out     io.Writer
}

// run acts on events until ctx ends.
func (l *loop) run(ctx context.Context) error {
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	for {
		if ok, why := l.healthy(); !ok {
			fmt.Fprintln(l.out, "skip:", why)
			select {
			case <-time.After(unhealthyPause):
			case <-ctx.Done():
				return nil
			}
			continue
		}
		select {
		case ev, ok := <-l.events:
			if !ok {
				return nil
			}
			l.handle(ev)
		case <-resync.C:
			for _, pod := range l.cache.List() {
				l.sync(pod.UID)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// handle acts on one event. The removal of a container needs no sync: the sync after its
// exit did the work.
func (l *loop) handle(ev pleg.Event) {
	if ev.Type != pleg.ContainerRemoved {
		l.sync(ev.PodUID)
	}
	if ev.Type == pleg.ContainerDied && !ev.Sandbox { // remove what the container has left behind
		fmt.Fprintf(l.out, "clean up %s/%s %s\n", ev.PodNamespace, ev.PodName, ev.ContainerName)
	}
}

// sync brings a pod into its desired state. Its newest status is at least as new as the event.
// sync skips a pod that is gone or whose last inspection failed: another event follows the next
// successful inspection.
func (l *loop) sync(uid pleg.PodUID) {
	pod, err := l.cache.Get(uid)
	if err != nil {
		return
	}
	running := 0
	for _, c := range pod.Containers {
		if c.State == pleg.StateRunning {
			running++
		}
	}
	fmt.Fprintf(l.out, "sync %s/%s: %d of %d containers run\n", pod.Namespace, pod.Name, running, len(pod.Containers))
}
