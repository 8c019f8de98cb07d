//go:build linux

// Command containerd runs a real containerd with real pods and lets their
// containers exit on request. It replaces the simulated node, and needs root and
// the packages that tests/e2e/setup.sh installs.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// atOnce is how many pods are started or stopped at a time; more would only wait
// in containerd.
const atOnce = 8

func main() {
	socket := flag.String("socket", "", "path for a symbolic link to the socket")
	e2e := flag.String("e2e", "tests/e2e", "folder of the e2e module, which builds containerd")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket, *e2e); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, socket, e2e string) (err error) {
	if socket == "" {
		return errors.New("-socket is required")
	}
	if err := lab.Check(); err != nil {
		return err
	}
	// The lab finds its files relative to the working directory.
	if err := os.Chdir(e2e); err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop(ctx)) }()
	path := strings.TrimPrefix(l.Endpoint(), "unix://")
	if err := os.Symlink(path, socket); err != nil {
		return err
	}
	n := &node{lab: l, socket: path}
	return control.Serve(os.Stdin, os.Stdout, func(o control.Order) control.Answer {
		return n.handle(ctx, o)
	})
}

// node handles one order after the other.
type node struct {
	lab    *lab.Lab
	socket string
	pods   []*lab.Pod
	// running has the containers that did not get the order to exit.
	running []*lab.Container
	dead    []*lab.Container
	attempt uint32
	// cpu is the CPU time of containerd at the last reset.
	cpu float64
}

func (n *node) handle(ctx context.Context, o control.Order) control.Answer {
	var answer control.Answer
	var err error
	switch o.Do {
	case control.NodePopulate:
		err = n.populate(ctx, o)
	case control.NodeBurst:
		err = n.burst(ctx)
		n.cpu = cpuSeconds(n.socket)
	case control.NodeStats:
		answer.CPUSeconds = cpuSeconds(n.socket) - n.cpu
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	if err != nil {
		answer.Err = err.Error()
	}
	return answer
}

// populate creates the pods at the first call. At every call it removes the exited
// containers and runs new ones.
func (n *node) populate(ctx context.Context, o control.Order) error {
	if len(n.pods) == 0 {
		specs := make([]lab.PodSpec, o.Pods)
		for i := range specs {
			specs[i] = lab.PodSpec{Name: fmt.Sprintf("bench-%d", i), HostNetwork: true}
		}
		var err error
		if n.pods, err = n.lab.RunPods(ctx, specs); err != nil {
			return err
		}
	}
	if len(n.pods) != o.Pods || len(n.running) > 0 {
		return fmt.Errorf("have %d pods and %d running containers, want %d pods and none", len(n.pods), len(n.running), o.Pods)
	}
	if err := each(ctx, n.dead, n.lab.RemoveContainer); err != nil {
		return err
	}
	n.dead, n.running = nil, make([]*lab.Container, o.Pods*o.Containers)
	attempt := n.attempt
	n.attempt++
	var starts errgroup.Group
	starts.SetLimit(atOnce)
	for i := range n.running {
		starts.Go(func() (err error) {
			n.running[i], err = n.lab.RunContainer(ctx, n.pods[i%o.Pods], lab.ContainerSpec{
				Name: fmt.Sprintf("main-%d", i/o.Pods), Attempt: attempt, Program: lab.Exit(1),
			})
			return err
		})
	}
	return starts.Wait()
}

// burst returns when every container has exited.
func (n *node) burst(ctx context.Context) error {
	err := errors.Join(each(ctx, n.running, n.lab.Trigger), each(ctx, n.running, n.lab.AwaitDied))
	n.dead, n.running = n.running, nil
	return err
}

func each(ctx context.Context, containers []*lab.Container, do func(context.Context, *lab.Container) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for _, c := range containers {
		all.Go(func() error { return do(ctx, c) })
	}
	return all.Wait()
}

// cpuSeconds returns the CPU time of the containerd that serves the socket. Its
// arguments name a file in the socket's folder.
func cpuSeconds(socket string) float64 {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		program, args, _ := bytes.Cut(line, []byte{0})
		if filepath.Base(string(program)) == "containerd" && strings.Contains(string(args), filepath.Dir(socket)) {
			return processSeconds(filepath.Dir(file))
		}
	}
	return 0
}

// processSeconds returns the time on a processor of the threads in a folder of /proc. A burst
// takes less than a few ticks of /proc/PID/stat.
func processSeconds(dir string) float64 {
	threads, _ := filepath.Glob(filepath.Join(dir, "task", "[0-9]*", "schedstat"))
	var all time.Duration
	for _, thread := range threads {
		stat, _ := os.ReadFile(thread)
		onProcessor, _, _ := strings.Cut(string(stat), " ")
		nanoseconds, _ := strconv.ParseInt(onProcessor, 10, 64) // 0 if the thread has ended
		all += time.Duration(nanoseconds)
	}
	return all.Seconds()
}
