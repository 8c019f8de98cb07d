// Command syncloop shows the loop that acts on events, as a kubelet's does: it
// syncs the pods that something happened to, cleans up dead containers, looks at
// every pod from time to time, and does nothing while the generator is unhealthy.
//
//	syncloop unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
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
	if err := run(ctx, os.Args[1], os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "syncloop:", err)
		os.Exit(1)
	}
}

// run syncs pods until ctx ends, and returns its cause.
func run(ctx context.Context, endpoint string, out io.Writer) error {
	runtime, err := cri.New(endpoint, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	p, err := pipeline.New(pipeline.Options{Runtime: runtime})
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{Name: "syncloop"})
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error {
		l := &loop{node: p, cache: p.Cache(), events: sub.Events(), handler: printer{out}}
		return l.run(ctx)
	})
	return tasks.Wait()
}

// printer only says what it would do.
type printer struct{ out io.Writer }

func (p printer) Sync(pod *pipeline.PodStatus) {
	running := 0
	for _, c := range pod.Containers {
		if c.State == pleg.StateRunning {
			running++
		}
	}
	fmt.Fprintf(p.out, "sync %s/%s: %d of %d containers run\n", pod.Namespace, pod.Name, running, len(pod.Containers))
}

func (p printer) CleanUp(ev pipeline.Event) {
	fmt.Fprintf(p.out, "clean up %s/%s %s\n", ev.PodNamespace, ev.PodName, ev.ContainerName)
}

func (p printer) Skip(why error) { fmt.Fprintln(p.out, "skip:", why) }
