// Command client runs the pipeline against a CRI socket and measures it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"golang.org/x/sync/errgroup"
)

// history has room for every event of the largest burst: the benchmark
// compares how fast events arrive, not how many are discarded.
const history = 1 << 15

type config struct {
	socket          string
	inspectors      int
	events          bool
	period, timeout time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.socket, "socket", "", "socket of the container runtime")
	flag.IntVar(&c.inspectors, "inspectors", pipeline.DefaultInspectors, "pods inspected at once")
	flag.BoolVar(&c.events, "events", false, "follow CRI events")
	flag.DurationVar(&c.period, "period", time.Second, "relist period")
	flag.DurationVar(&c.timeout, "timeout", 2*time.Minute, "deadline of a runtime call")
	flag.Parse()
	if err := c.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func (c config) run(ctx context.Context) (err error) {
	runtime, err := cri.New(c.socket, cri.Options{
		ListTimeout: c.timeout, StatusTimeout: c.timeout,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	// Without this check the pipeline would wait for the socket.
	if _, err := os.Stat(strings.TrimPrefix(c.socket, "unix://")); err != nil {
		return fmt.Errorf("no runtime at -socket: %w", err)
	}
	return probe.Serve(ctx, c.candidate(runtime), os.Stdin, os.Stdout)
}

func (c config) candidate(runtime *cri.Client) probe.Candidate {
	return func(ctx context.Context, emit func(probe.Event)) error {
		opts := pipeline.Options{
			Runtime: runtime, RelistPeriod: c.period, InspectTimeout: c.timeout,
			Inspectors: c.inspectors, History: history,
			KubeletEvents: true, // GenericPLEG reports no start that it has not seen
		}
		if c.events {
			opts.Events = pipeline.EventsRequire
		}
		p, err := pipeline.New(opts)
		if err != nil {
			return err
		}
		subscription, err := p.Subscribe(pleg.SubscribeOptions{Name: "probe"})
		if err != nil {
			return err
		}
		var run errgroup.Group
		run.Go(func() error { return p.Run(ctx) })
		for e, err := range subscription.All(context.WithoutCancel(ctx)) {
			if err != nil {
				break // everything has been read
			}
			emit(probe.Event{Type: string(e.Type), ID: string(e.ContainerID), At: e.ObservedAt})
		}
		return run.Wait()
	}
}
