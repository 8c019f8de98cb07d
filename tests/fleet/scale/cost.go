package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
)

// cost compares a daemon that publishes with one that does not. Both have the same simulated
// runtime in their process, and run at the same time.
func cost(ctx context.Context, o options) error {
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
	daemons := []struct {
		name    string
		command *exec.Cmd
	}{
		{"run", o.daemon(dir, "without")},
		{"run --nats", o.daemon(dir, "with", "--nats", server.URL, "--cluster", cluster, "--node", name(0))},
	}
	for _, d := range daemons {
		if err := d.command.Start(); err != nil {
			return err
		}
		defer func() {
			_ = d.command.Process.Signal(os.Interrupt)
			_ = d.command.Wait() // the interrupt ends it
		}()
	}
	const warmUp = 10 * time.Second
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	before := make([]time.Duration, len(daemons))
	for i, d := range daemons {
		if before[i], err = cpuTime(d.command.Process.Pid); err != nil {
			return err
		}
	}
	if err := sleep(ctx, o.cost); err != nil {
		return err
	}
	for i, d := range daemons {
		after, err := cpuTime(d.command.Process.Pid)
		if err != nil {
			return err
		}
		used := float64((after - before[i]).Milliseconds()) / o.cost.Seconds()
		fmt.Printf("| %s | %s | %.1f ms a second |\n", d.name, rss(d.command.Process.Pid), used)
	}
	return nil
}

// daemon returns the command of a daemon that ends with this process.
func (o *options) daemon(dir, socket string, args ...string) *exec.Cmd {
	c := exec.Command(o.program, append([]string{
		"run", "--quiet", "-v", "error", "--socket", filepath.Join(dir, socket+".sock"),
		fmt.Sprintf("--simulate=%d", o.pods), "--churn-rate", fmt.Sprint(o.rate),
	}, args...)...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cpuTime returns how long a process has used a CPU.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses; utime and stime are 14 and 15.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	const utime, stime, ticks = 14 - 3, 15 - 3, 100 // ticks a second, on every Linux
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, errUser := strconv.Atoi(fields[utime])
	system, err := strconv.Atoi(fields[stime])
	if errUser != nil || err != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %q and %q are no times", pid, fields[utime], fields[stime])
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}
