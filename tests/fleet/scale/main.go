// Command scale measures a fleet on one machine: a real nats-server as a child process,
// virtual nodes with the real dispatcher and the real publisher, a watch that checks what
// it gets, and faults. It runs in the folder tests/fleet and prints a table.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	nodes, pods, connections int
	rate                     float64
	duration, cost           time.Duration
	program                  string
}

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 1000, "the `NUMBER` of nodes")
	flag.IntVar(&o.pods, "pods", 100, "the `NUMBER` of pods of each node")
	flag.IntVar(&o.connections, "connections", 50, "the `NUMBER` of connections that the nodes share")
	flag.Float64Var(&o.rate, "rate", 3.75, "`EVENTS` of a node each second")
	flag.DurationVar(&o.duration, "duration", 10*time.Minute, "the `TIME` under load")
	flag.DurationVar(&o.cost, "cost", 0, "instead, measure for this `TIME` one daemon with --nats beside one without; -rate is its changes a second")
	flag.StringVar(&o.program, "program", "../../bin/pleg-pipeline", "the `FILE` of the program, for -cost")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measure := run
	if o.cost > 0 {
		measure = cost
	}
	if err := measure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// report prints one row of the table.
func report(what, format string, args ...any) {
	fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

func run(ctx context.Context, o options) error {
	f, err := newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.close()
	fmt.Printf("| %d nodes, %g events/s each, %d pods each, %v | |\n| --- | --- |\n", o.nodes, o.rate, o.pods, o.duration)
	if err := f.fill(ctx); err != nil {
		return err
	}
	if err := f.load(ctx); err != nil {
		return err
	}
	if err := f.late(ctx); err != nil {
		return err
	}
	return f.floor(ctx)
}
