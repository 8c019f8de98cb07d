package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
)

// stopGrace is how long a child may take to stop before it is killed. The
// kubelet cannot be stopped while a call hangs.
const stopGrace = 500 * time.Millisecond

// child is a process that answers messages.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *json.Decoder
	stderr bytes.Buffer
	// grace is how long the process may take to stop before it is killed.
	grace time.Duration
}

// start runs a program, which is killed when ctx ends.
func start(ctx context.Context, program string, args ...string) (*child, error) {
	c := &child{name: program, grace: stopGrace, cmd: exec.CommandContext(ctx, program, args...)}
	c.cmd.Stderr, c.cmd.WaitDelay = &c.stderr, stopGrace
	stdin, inErr := c.cmd.StdinPipe()
	stdout, outErr := c.cmd.StdoutPipe()
	err := errors.Join(inErr, outErr)
	if err == nil {
		c.stdin, c.stdout, err = stdin, json.NewDecoder(stdout), c.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return c, nil
}

// ask sends a message and waits for the answer. The end of the child is an error,
// explained by its standard error.
func (c *child) ask(message, answer any) error {
	err := json.NewEncoder(c.stdin).Encode(message)
	if err == nil {
		err = c.stdout.Decode(answer)
	}
	if err == nil {
		return nil
	}
	c.stop()
	if output := strings.TrimSpace(c.stderr.String()); output != "" {
		return fmt.Errorf("%s has ended: %s", c.name, output)
	}
	return fmt.Errorf("%s has ended: %w", c.name, err)
}

// stop ends the child and kills it after its grace period. Its exit code does not
// matter: all answers have arrived.
func (c *child) stop() {
	if c == nil {
		return
	}
	_ = c.stdin.Close()
	killer := time.AfterFunc(c.grace, func() { _ = c.cmd.Process.Kill() })
	defer killer.Stop()
	_ = c.cmd.Wait()
}

// lab is one node and one candidate that is connected to it, each in its own
// process. After an error it does nothing more.
type lab struct {
	candidate    Candidate
	node, client *child
	err          error
}

// inLab returns a measurement that does its work in a new lab. The candidate's
// process runs, but the candidate itself starts in [lab.startClient].
func inLab(period, timeout time.Duration, do func(context.Context, *lab) Metrics, nodeFlags ...string) func(context.Context, *bench, Candidate) (Metrics, error) {
	return func(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
		l := &lab{candidate: c}
		b.labs++
		socket := filepath.Join(b.temp, fmt.Sprintf("cri-%d.sock", b.labs))
		flags := append([]string{"-socket", socket}, nodeFlags...)
		if l.node, l.err = start(ctx, b.program("node"), flags...); l.err != nil {
			return nil, l.err
		}
		defer l.node.stop()
		// The node answers once it listens on the socket.
		l.order(control.Order{Do: control.NodeReset})
		l.connect(ctx, b, socket, period, timeout)
		defer l.client.stop()
		m := do(ctx, l)
		return m, l.err
	}
}

// connect starts the process of the candidate, which will connect to the socket.
func (l *lab) connect(ctx context.Context, b *bench, socket string, period, timeout time.Duration) {
	if l.err != nil {
		return
	}
	args := []string{"-socket", socket, "-period", period.String(), "-timeout", timeout.String()}
	program, c := "client", l.candidate
	switch {
	case c.inKubelet():
		program = "kubelet"
		args = append(args, "-root", b.temp, "-events="+strconv.FormatBool(c == kubeletEvents || c == dropInEvents),
			"-drop-in="+strconv.FormatBool(c.isDropIn()))
	case c == serial:
		args = append(args, "-candidate", "serial")
	case c == callsOnly:
		args = append(args, "-candidate", "calls", "-inspectors", strconv.Itoa(usualWidth))
	default:
		args = append(args, "-inspectors", strconv.Itoa(c.width()), "-events="+strconv.FormatBool(c.events()))
	}
	l.client, l.err = start(ctx, b.program(program), args...)
}

// order sends the node one order after the other and returns the last answer.
func (l *lab) order(orders ...control.Order) (a control.Answer) {
	for _, o := range orders {
		if a = (control.Answer{}); l.err == nil {
			l.err = l.node.ask(o, &a)
		}
		if a.Err != "" {
			l.fail(fmt.Errorf("%s: %s", l.node.name, a.Err))
		}
	}
	return a
}

func (l *lab) command(c control.Command) (r control.Report) {
	if l.err == nil {
		l.err = l.client.ask(c, &r)
	}
	if r.Err != "" {
		l.fail(fmt.Errorf("%s: %s", l.client.name, r.Err))
	}
	return r
}

func (l *lab) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *lab) pause(ctx context.Context, d time.Duration) {
	if l.err != nil {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		l.err = context.Cause(ctx)
	}
}

// window measures change from its beginning to the last wanted event. The lab fails if other events than the wanted ones arrived: then the
// candidate did other work.
func (l *lab) window(want map[string]int, change func()) control.Report {
	l.command(control.Command{Do: control.ClientExpect, Want: want})
	change()
	r := l.command(control.Command{Do: control.ClientWait, TimeoutMS: int(longest.Milliseconds())})
	l.fail(verify(r, want))
	return r
}

// startClient starts the candidate and waits for its first events.
func (l *lab) startClient(want map[string]int) control.Report {
	return l.window(want, func() { l.command(control.Command{Do: control.ClientStart}) })
}

// populate adds pods and starts the candidate, which then knows all of them and, if
// it follows CRI events, relies on its event stream.
func (l *lab) populate(ctx context.Context, pods, containers int) {
	l.order(control.Order{Do: control.NodePopulate, Pods: pods, Containers: containers})
	l.startClient(started(pods, containers))
	if l.candidate.events() {
		l.pause(ctx, streamUp)
	}
}

func verify(r control.Report, want map[string]int) error {
	got := make(map[string]int, len(r.Seen))
	for name, seen := range r.Seen {
		got[name] = seen.Count
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("wrong work: got events %v, want %v (done: %t)", got, want, r.Done)
	}
	return nil
}

// burstMetrics combines what the client saw with what the node counted.
func (l *lab) burstMetrics(r control.Report, pods int) Metrics {
	at := l.order(control.Order{Do: control.NodeStats})
	m := Metrics{
		"client": r.Usage.CPUSeconds * 1e3, "server": at.CPUSeconds * 1e3, "allocs": float64(r.Usage.Allocs),
		"waiting": float64(at.PeakArrived), "calls": float64(statusCalls(at)) / float64(pods),
	}
	for _, seen := range r.Seen {
		m["last"] = max(m["last"], seen.LastMS)
	}
	if limit := limit(at, l.candidate); limit > 1 {
		m["limit"] = limit
	}
	return m
}

func statusCalls(at control.Answer) int64 {
	return at.RPCs["ContainerStatus"].Calls + at.RPCs["PodSandboxStatus"].Calls
}

// limit is the shortest time in milliseconds for a client with as many status
// calls in flight: one list, and the time of all status calls divided by the most
// in flight. The calls in flight do not include the lists.
func limit(at control.Answer, c Candidate) float64 {
	width := min(c.width(), at.PeakInFlight)
	if width == 0 {
		return 0
	}
	list := max(mean(at.RPCs["ListContainers"]), mean(at.RPCs["ListPodSandbox"]))
	return list + (at.RPCs["ContainerStatus"].TimeMS+at.RPCs["PodSandboxStatus"].TimeMS)/float64(width)
}

func mean(r control.RPC) float64 { return r.TimeMS / max(1, float64(r.Calls)) }
