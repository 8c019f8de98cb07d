// Command scale measures a fleet on one machine: a real nats-server as a child process,
// virtual nodes with the real dispatcher and the real publisher, a watch that checks what
// it gets, and faults. It runs in the folder tests/fleet and prints a table.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
	"github.com/pleg-pipeline/pleg-pipeline/tests/load"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
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
	measure := o.scale
	if o.cost > 0 {
		measure = o.measureCost
	}
	os.Exit(load.Main(load.NewRun("scale", os.Stdout), measure))
}

func (o options) scale(ctx context.Context, r *load.Run) error {
	f, err := newFleet(ctx, r, o)
	if err != nil {
		return err
	}
	defer f.close()
	fmt.Printf("| %d nodes, %g events/s each, %d pods each, %v | |\n| --- | --- |\n", o.nodes, o.rate, o.pods, o.duration)
	for _, part := range []func(context.Context) error{f.fill, f.load, f.late, f.floor} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// load makes events for the duration, in quarters. Each quarter but the first ends with a
// fault, after which the watch must have everything.
func (f *virtualFleet) load(ctx context.Context) error {
	f.takeDelays()
	quarter, began := f.o.duration/4, time.Now()
	f.step(ctx, quarter)
	delays := f.takeDelays()
	f.Row("events a second, made and delivered, without faults", "%.0f", float64(f.made)/time.Since(began).Seconds())
	f.Row("delay from event to watch", "p50 %v, p99 %v", delays.Quantile(0.5).Round(100*time.Microsecond), delays.Quantile(0.99).Round(100*time.Microsecond))
	f.Row("server: memory (RSS), stored", "%s, %.0f MB", memory(f.server.PID()), f.stored(ctx))
	f.Row("all nodes and the watch, in one process: memory (RSS)", "%s", memory(os.Getpid()))
	for _, fault := range []load.Fault{
		{Name: "server killed, back after 5 s", Inject: func(ctx context.Context) error {
			f.server.Kill()
			f.step(ctx, 5*time.Second)
			return f.server.Start(ctx)
		}},
		{Name: "server stopped for 10 s", Inject: func(ctx context.Context) error {
			if err := f.server.Pause(); err != nil {
				return err
			}
			f.step(ctx, 10*time.Second)
			return f.server.Continue()
		}},
		{Name: "a tenth of the agents restarted", Inject: f.restartAgents},
	} {
		f.step(ctx, quarter)
		if err := f.Break(ctx, fault); err != nil {
			return err
		}
		ended := time.Now()
		at, err := f.converged(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", fault.Name, err)
		}
		f.Row(fault.Name+": until the watch has everything", "%.1f s", max(0, at.Sub(ended)).Seconds())
	}
	delays = f.takeDelays()
	f.Row("delay from event to watch, with faults", "p50 %v, p99 %v", delays.Quantile(0.5).Round(time.Millisecond), delays.Quantile(0.99).Round(time.Millisecond))
	f.Row("server at the end: memory (RSS), stored", "%s, %.0f MB", memory(f.server.PID()), f.stored(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Row("events checked, Gaps", "%d, %d", f.seen.Events, f.seen.Gaps)
	return nil
}

func (f *virtualFleet) restartAgents(ctx context.Context) error {
	for i := 0; i < len(f.nodes); i += 10 {
		f.stops[i]()
		node, err := f.nodes[i].Restart()
		if err != nil {
			return err
		}
		f.nodes[i] = node
		if err := f.publish(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// stored returns the size of all streams in MB.
func (f *virtualFleet) stored(ctx context.Context) float64 {
	js, err := jetstream.New(f.conns[f.o.connections])
	if err != nil {
		return 0
	}
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return 0
	}
	return float64(info.Store) / 1e6
}

// memory returns the RSS of a process.
func memory(pid int) string {
	use, err := process.UseOf(pid)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d kB", use.RSS>>10)
}

// measureCost compares a daemon that publishes with one that does not. Both have the same
// simulated runtime in their process, and run at the same time.
func (o options) measureCost(ctx context.Context, _ *load.Run) error {
	dir, err := os.MkdirTemp("", "pleg-cost-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := natsd.Run(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	fmt.Printf("| %d pods, %g changes/s, %v | memory (RSS) | CPU |\n| --- | --- | --- |\n", o.pods, o.rate, o.cost)
	names := []string{"run", "run --nats"}
	daemons, before := make([]*load.Daemon, len(names)), make([]process.Use, len(names))
	for i, extra := range [][]string{nil, {"--nats", server.URL, "--cluster", cluster, "--node", name(0)}} {
		args := []string{"-v", "error", fmt.Sprintf("--simulate=%d", o.pods), "--churn-rate", fmt.Sprint(o.rate)}
		daemons[i], err = load.StartDaemon(ctx, load.DaemonOptions{Program: o.program, Dir: dir, Name: fmt.Sprint(i), Args: append(args, extra...)})
		if err != nil {
			return err
		}
		defer func() { _ = daemons[i].Stop() }()
	}
	const warmUp = 10 * time.Second
	load.Sleep(ctx, warmUp)
	for i, d := range daemons {
		if before[i], err = process.UseOf(d.PID()); err != nil {
			return err
		}
	}
	if !load.Sleep(ctx, o.cost) {
		return context.Cause(ctx)
	}
	for i, d := range daemons {
		after, err := process.UseOf(d.PID())
		if err != nil {
			return err
		}
		used := float64((after.CPU - before[i].CPU).Milliseconds()) / o.cost.Seconds()
		fmt.Printf("| %s | %d kB | %.1f ms a second |\n", names[i], after.RSS>>10, used)
	}
	return nil
}
