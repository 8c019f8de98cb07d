//go:build linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

var (
	buildProgram = sync.OnceValues(func() (string, error) { return build("pleg-pipeline", "-race") })
	// buildRelease builds without the race detector, which takes many times as
	// much memory and delays the end of every container by 1 s.
	buildRelease = sync.OnceValues(func() (string, error) { return build("pleg-pipeline-release") })
)

// build builds the program into .bin, because t.TempDir would not outlive the
// test that builds it.
func build(name string, flags ...string) (string, error) {
	path, err := filepath.Abs(filepath.Join(".bin", name))
	if err != nil {
		return "", err
	}
	args := append([]string{"build", "-C", filepath.Join("..", ".."), "-o", path}, flags...)
	out, err := exec.Command("go", append(args, "./cmd/pleg-pipeline")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
}

// program is an instance that is a process of pleg-pipeline.
type program struct {
	*instance
	*process.Process
	read chan struct{} // closed when its output has ended
}

// programOptions say how to run a program.
type programOptions struct {
	name   string
	events bool
	// shell runs before the program, in the same process.
	shell string
	env   []string
	// memory limits the program, in bytes. It is then built without the race
	// detector.
	memory int64
}

// pollingAndEvents are one program that polls and one that follows the CRI events.
func pollingAndEvents(o programOptions) []programOptions {
	polling, events := o, o
	polling.name = strings.TrimSpace(o.name + " polling")
	events.name, events.events = strings.TrimSpace(o.name+" events"), true
	return []programOptions{polling, events}
}

// runProgram runs the program on the lab until the test ends.
func (f *fixture) runProgram(ctx context.Context) *program {
	f.t.Helper()
	path, err := buildProgram()
	must(f.t, err)
	return f.start("program", exec.CommandContext(ctx, path, f.runArgs()...)) //nolint:contextcheck // Fresh needs no context: it does not wait
}

func (f *fixture) runArgs() []string {
	return []string{"run", "--output", "json", "--relist-period", relistPeriod.String(), "--runtime-endpoint", f.lab.Endpoint()}
}

// runObserved is runProgram, with a check of the health and state that the program serves.
func (f *fixture) runObserved(ctx context.Context, o programOptions) {
	t := f.t
	t.Helper()
	build := buildProgram
	if o.memory > 0 {
		build = buildRelease
		procs, err := f.lab.LimitMemory(strings.ReplaceAll(o.name, " ", "-"), o.memory)
		must(t, err)
		o.shell += " echo $$ >" + procs + ";"
	}
	path, err := build()
	must(t, err)
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	args := append(f.runArgs(), "--socket", socket, "--relist-threshold", "5s", "--list-timeout", "2s", "--inspect-timeout", "2s")
	if o.events {
		args = append(args, "--events", "auto", "--relist-period-with-events", "10s")
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", o.shell + ` exec "$0" "$@"`, path}, args...)...)
	cmd.Env = append(os.Environ(), o.env...)
	p := f.start(o.name, cmd) //nolint:contextcheck // Fresh needs no context: it does not wait
	p.dial(t, socket)
	p.watchHealth(t) //nolint:contextcheck // it runs until the instance is stopped
	must(t, p.awaitHealth(ctx, true))
	if o.events { // lists become rare once the stream is up and no list runs
		must(t, eventually(ctx, func() bool {
			status, err := p.status(ctx)
			return err == nil && status.Relist.Period > relistPeriod && status.Relist.Started.IsZero()
		}))
	}
	f.programs = append(f.programs, p)
}

// start runs a command whose process becomes the program.
func (f *fixture) start(name string, cmd *exec.Cmd) *program {
	t := f.t
	t.Helper()
	p := &program{instance: newInstance(name), read: make(chan struct{})}
	stdout, write, err := os.Pipe()
	must(t, err)
	cmd.Stdout = write
	p.Process, err = process.Start(cmd, filepath.Join(t.TempDir(), "stderr"))
	_ = write.Close()
	must(t, err)
	go func() {
		defer close(p.read)
		defer func() { _ = stdout.Close() }()
		p.decode(stdout)
	}()
	t.Cleanup(func() {
		p.Kill()
		<-p.read
		p.check(t, f.lab)
		if t.Failed() {
			t.Logf("stderr of %s:\n%s", name, p.Tail())
		}
	})
	f.instances = append(f.instances, p.instance)
	return p
}

// callTimeout bounds a call of a program, which may be stopped.
const callTimeout = time.Second

// dial makes the health and the state of the program known.
func (p *program) dial(t *testing.T, socket string) {
	t.Helper()
	c, err := client.New(socket, client.Options{})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	p.status = func(ctx context.Context) (pleg.Status, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return c.Status(ctx)
	}
	p.entries = func(ctx context.Context) ([]cache.Entry, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		pods, err := c.Pods(ctx)
		entries := make([]cache.Entry, len(pods))
		for i, p := range pods {
			entries[i] = cache.Entry(p)
		}
		return entries, err
	}
}

func (p *program) decode(stdout io.Reader) {
	events := json.NewDecoder(stdout)
	for {
		var ev pleg.Event
		err := events.Decode(&ev)
		if err == io.EOF {
			return
		}
		if err != nil {
			p.problem("output: %v", err)
			_, _ = io.Copy(io.Discard, stdout)
			return
		}
		p.add(ev)
	}
}

// stop ends the program, which must exit with code 0 and without a data race, and returns
// its stderr.
func (p *program) stop(t *testing.T) string {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	<-p.read
	stderr, err := os.ReadFile(p.Log)
	must(t, err)
	if strings.Contains(string(stderr), "DATA RACE") || strings.Contains(string(stderr), "panic") {
		t.Errorf("stderr of %s: %s", p.name, stderr)
	}
	return strings.TrimRight(string(stderr), "\n")
}

// stopWithSummary is stop. It fails the test unless stderr is little more than the summary.
func (p *program) stopWithSummary(t *testing.T) {
	t.Helper()
	stderr := p.stop(t)
	lines := strings.Split(stderr, "\n")
	summary := lines[len(lines)-1]
	for _, word := range []string{"events", "ContainerStarted", "ContainerDied", "ContainerRemoved"} {
		if !strings.Contains(summary, word) {
			t.Errorf("summary: no %q in %q", word, summary)
		}
	}
	if len(lines) > 3 {
		t.Errorf("stderr: got %q, want the summary and at most two lines before it", stderr)
	}
}

// changeContainers starts, ends and removes a container in each pod, and awaits
// each step.
func (f *fixture) changeContainers(ctx context.Context, attempt uint32) {
	f.t.Helper()
	f.runContainers(ctx, func(int) lab.ContainerSpec {
		return lab.ContainerSpec{Name: "side", Attempt: attempt, Program: lab.Exit(3)}
	})
	f.triggerAll(ctx)
	f.forEachPod(ctx, func(ctx context.Context, _ int, p *lab.Pod) error { return removeDead(ctx, f.lab, newest(p)) })
}
