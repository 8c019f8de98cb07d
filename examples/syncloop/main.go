// Command syncloop shows a loop that acts on events, as the kubelet does: it syncs pods
// that changed, cleans up containers that exited, syncs all pods from time to time, and
// does nothing while the pipeline is unhealthy. The loop is the same on a pipeline in this process
// and on that of a daemon:
//
//	syncloop unix:///run/containerd/containerd.sock
//	syncloop /run/pleg-pipeline/pleg.sock
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: syncloop ENDPOINT|SOCKET")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	start := run
	if !strings.Contains(os.Args[1], "://") {
		start = runOnDaemon
	}
	if err := start(ctx, os.Args[1], os.Stdout, log); err != nil {
		log.Error("syncloop failed", "err", err)
		os.Exit(1)
	}
}

// run syncs pods until ctx ends, with a pipeline of its own.
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
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error { return syncPods(ctx, p, out) })
	return tasks.Wait()
}

// runOnDaemon syncs pods until ctx ends, with the pipeline of a daemon.
func runOnDaemon(ctx context.Context, socket string, out io.Writer, log *slog.Logger) error {
	c, err := client.New(socket, client.Options{Logger: log})
	if err != nil {
		return err
	}
	defer c.Close()
	return syncPods(ctx, c, out)
}

const (
	// unhealthyPause is the time after which the loop asks again whether the pipeline is
	// healthy. The answer costs the runtime no call.
	unhealthyPause = time.Second
	// resyncPeriod is the time between two syncs of all pods. They find problems that no event
	// reports, such as a failed probe.
	resyncPeriod = 10 * time.Second
)

// loop prints what it would do.
type loop struct {
	p   node.Pipeline
	out io.Writer
}

// syncPods acts on events until ctx ends. It begins with the pods that are there, and misses nothing
// that happens after that.
func syncPods(ctx context.Context, p node.Pipeline, out io.Writer) error {
	l := &loop{p, out}
	if ok, why := p.Healthy(); !ok {
		fmt.Fprintln(out, "skip:", why)
	}
	if err := p.WaitSynced(ctx); err != nil {
		return ended(ctx, err)
	}
	after, err := l.resync(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "syncloop", After: after})
	if err != nil {
		return ended(ctx, err)
	}
	defer sub.Close()
	return l.run(ctx, sub.Events())
}

// ended returns nil if ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (l *loop) run(ctx context.Context, events <-chan pleg.Event) error {
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	for {
		if ok, why := l.p.Healthy(); !ok {
			fmt.Fprintln(l.out, "skip:", why)
			select {
			case <-time.After(unhealthyPause):
			case <-ctx.Done():
				return nil
			}
			continue
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return nil
			}
			l.handle(ctx, ev)
		case <-resync.C:
			if _, err := l.resync(ctx); err != nil {
				fmt.Fprintln(l.out, "skip:", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// resync syncs all pods, and returns the position from which on events are new.
func (l *loop) resync(ctx context.Context) (pleg.Position, error) {
	pods, position, err := l.p.Pods(ctx)
	for _, pod := range pods {
		l.sync(ctx, pod.UID)
	}
	return position, err
}

// handle acts on one event. The removal of a container needs no sync: the sync after its
// exit did the work. Neither does a mark: after a Gap the present state follows.
func (l *loop) handle(ctx context.Context, ev pleg.Event) {
	if ev.Type != pleg.ContainerRemoved && ev.PodUID != "" {
		l.sync(ctx, ev.PodUID)
	}
	if ev.Type == pleg.ContainerDied && !ev.Sandbox { // remove what the container has left behind
		fmt.Fprintf(l.out, "clean up %s/%s %s\n", ev.PodNamespace, ev.PodName, ev.ContainerName)
	}
}

// sync brings a pod into its desired state. Its newest status is at least as new as the event.
// sync skips a pod that is gone or whose last inspection failed: another event follows the next
// successful inspection.
func (l *loop) sync(ctx context.Context, uid pleg.PodUID) {
	pod, err := l.p.PodStatus(ctx, uid, time.Time{})
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
