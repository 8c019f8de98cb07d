// Command client runs the serial baseline or the pipeline against a CRI socket and
// measures it.
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
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// eventBuffer has room for every event of the largest burst: the benchmark
// compares how fast events arrive, not how many are discarded.
const eventBuffer = 1 << 15

type config struct {
	candidate, socket string
	inspectors        int
	events            bool
	period, timeout   time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.candidate, "candidate", "pipeline", "serial or pipeline")
	flag.StringVar(&c.socket, "socket", "", "socket of the container runtime")
	flag.IntVar(&c.inspectors, "inspectors", pipeline.DefaultInspectors, "status calls of the pipeline at once")
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
	candidates := map[string]func(*cri.Client) probe.Candidate{"serial": c.serial, "pipeline": c.pipeline}
	candidate := candidates[c.candidate]
	if candidate == nil {
		return fmt.Errorf("unknown candidate %q: have serial and pipeline", c.candidate)
	}
	opts := cri.Options{
		ListTimeout: c.timeout, StatusTimeout: c.timeout,
		UnaryLists: true, // as the kubelet lists, and as the harness counts
	}
	if c.candidate == "serial" {
		opts.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(oneByOne())}
	}
	runtime, err := cri.New(c.socket, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	// Without this check the candidates would wait for the socket.
	if _, err := os.Stat(strings.TrimPrefix(c.socket, "unix://")); err != nil {
		return fmt.Errorf("no runtime at -socket: %w", err)
	}
	return probe.Serve(ctx, candidate(runtime), os.Stdin, os.Stdout)
}

// oneByOne makes status calls one after the other, as the kubelet does.
func oneByOne() grpc.UnaryClientInterceptor {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasSuffix(method, "Status") {
			turn <- struct{}{}
			defer func() { <-turn }()
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

func (c config) serial(runtime *cri.Client) probe.Candidate {
	return func(ctx context.Context, emit func(probe.Event)) error {
		events := make(chan pleg.Event, eventBuffer)
		baseline, err := serial.New(runtime, serial.Options{Events: events, InspectTimeout: c.timeout})
		if err != nil {
			return err
		}
		var both errgroup.Group
		both.Go(func() error {
			defer close(events)
			return baseline.Run(ctx, c.period)
		})
		for e := range events {
			emit(event(e))
		}
		return both.Wait()
	}
}

func (c config) pipeline(runtime *cri.Client) probe.Candidate {
	return func(ctx context.Context, emit func(probe.Event)) error {
		opts := pipeline.Options{
			Runtime: runtime, RelistPeriod: c.period, InspectTimeout: c.timeout,
			Inspectors: max(1, c.inspectors/2), // each makes two calls at once
		}
		if c.events {
			opts.Events = pipeline.EventsRequire
		}
		p, err := pipeline.New(opts)
		if err != nil {
			return err
		}
		subscription, err := p.Subscribe(pipeline.SubscribeOptions{Name: "probe", Buffer: eventBuffer})
		if err != nil {
			return err
		}
		var both errgroup.Group
		both.Go(func() error { return p.Run(ctx) })
		for e := range subscription.Events() {
			emit(event(e))
		}
		return both.Wait()
	}
}

func event(e pleg.Event) probe.Event {
	return probe.Event{Type: string(e.Type), ID: string(e.ContainerID), At: e.ObservedAt}
}
