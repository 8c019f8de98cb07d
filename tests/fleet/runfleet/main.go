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
	"syscall"

	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
)

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
	place := []string{"--cluster", "demo"}
	var agents []*exec.Cmd
	for i := range nodes {
		agent := child(program, append([]string{
			"run", "--simulate=8", "--seed", fmt.Sprint(i + 1), "--churn-rate", "0.05", "--quiet", "-v", "error",
			"--nats", server.URL, "--node", fmt.Sprintf("node-%02d", i+1),
		}, place...)...)
		if err := agent.Start(); err != nil {
			return err
		}
		agents = append(agents, agent)
	}
	say("%d nodes publish; the pods of all: %s pods --fleet %s --cluster demo", nodes, program, server.URL)
	watcher := child(program, append(append([]string{"events", "--fleet", server.URL, "--replay"}, place...), args...)...)
	// What the agents say is not shown: twenty of them say the same.
	watcher.Stdout, watcher.Stderr = os.Stdout, os.Stderr
	if err := watcher.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- watcher.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = watcher.Process.Signal(os.Interrupt)
		err = <-ended
	}
	for _, agent := range agents {
		_ = agent.Process.Signal(os.Interrupt)
	}
	for _, agent := range agents {
		_ = agent.Wait() // the interrupt ends it
	}
	say("everything has ended")
	return err
}

// child returns a command that ends with this process, in a process group of its own: a
// Ctrl-C reaches only this process, which ends them in order.
func child(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return c
}
