// Command runfleet starts a real nats-server, simulated nodes that publish on it, and a
// watcher that prints the events of all of them. It ends with Ctrl-C, and everything that
// it has started ends with it. It runs in the folder tests/fleet.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

const cluster = "demo"

func main() {
	program := flag.String("program", "../../bin/pleg-pipeline", "the `FILE` of the program")
	nodes := flag.Int("nodes", 20, "the `NUMBER` of nodes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *program, *nodes, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "runfleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, nodes int, args []string) error {
	dir, err := os.MkdirTemp("", "pleg-fleet-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := natsd.Run(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "runfleet: "+format+"\n", args...) }
	say("nats-server listens on %s", server.URL)
	var agents []*process.Process
	defer func() {
		for _, agent := range agents {
			_ = agent.Process.Signal(syscall.SIGTERM)
		}
		for _, agent := range agents {
			_ = agent.Stop()
		}
	}()
	for i := range nodes {
		// What the agents say is not shown: twenty of them say the same.
		agent, err := process.Start(exec.Command(program,
			"run", "--simulate=8", "--seed", fmt.Sprint(i+1), "--churn-rate", "0.05", "--quiet", "-v", "error",
			"--nats", server.URL, "--cluster", cluster, "--node", fmt.Sprintf("node-%02d", i+1),
		), filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		agents = append(agents, agent)
	}
	say("%d nodes publish; the pods of all: %s pods --fleet %s --cluster %s", nodes, program, server.URL, cluster)
	watch := exec.Command(program, append([]string{"events", "--fleet", server.URL, "--replay", "--cluster", cluster}, args...)...)
	watch.Stdout, watch.Stderr = os.Stdout, os.Stderr
	watcher, err := process.Start(watch, filepath.Join(dir, "watcher"))
	if err != nil {
		return err
	}
	select {
	case <-watcher.Ended():
	case <-ctx.Done():
	}
	return watcher.Stop()
}
