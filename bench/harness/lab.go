package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/node"
)

// lab is one node and one candidate that is connected to it, in a process of its own.
// After an error the candidate does nothing more.
type lab struct {
	candidate Candidate
	node      *node.Node
	client    *control.Child
	err       error
}

// inLab returns a measurement that does its work in a new lab. The candidate's
// process runs, but the candidate itself starts in [lab.startClient].
func inLab(period, timeout time.Duration, carried bool, do func(context.Context, *lab) Metrics) func(context.Context, *bench, Candidate) (Metrics, error) {
	return func(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
		b.labs++
		socket := filepath.Join(b.temp, fmt.Sprintf("cri-%d.sock", b.labs))
		n, err := node.Start(ctx, socket, carried)
		if err != nil {
			return nil, err
		}
		l := &lab{candidate: c, node: n}
		l.connect(ctx, b, socket, period, timeout)
		m := do(ctx, l)
		l.client.Stop()
		l.fail(n.Stop())
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
		if program = "kubelet"; c == smallStep {
			program = "small-step"
		}
		args = append(args, "-root", b.temp, "-events="+strconv.FormatBool(strings.HasSuffix(string(c), "-events")),
			"-drop-in="+strconv.FormatBool(c.isDropIn()))
	case c == serial:
		args = append(args, "-candidate", "serial")
	default:
		args = append(args, "-inspectors", strconv.Itoa(c.width()), "-events="+strconv.FormatBool(c.events()))
	}
	l.client, l.err = control.Start(ctx, b.program(program), args...)
}

func (l *lab) command(c control.Command) (r control.Report) {
	if l.err == nil {
		l.err = l.client.Ask(c, &r)
	}
	if r.Err != "" {
		l.fail(errors.New(r.Err))
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
	l.fail(l.node.Populate(pods, containers))
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
func (l *lab) burstMetrics(r control.Report, at node.Stats, pods int) Metrics {
	m := Metrics{
		"client": r.Usage.CPUSeconds * 1e3, "server": at.CPUSeconds * 1e3, "allocs": float64(r.Usage.Allocs),
		"waiting": float64(at.PeakArrived), "calls": float64(at.StatusCalls()) / float64(pods),
	}
	for _, seen := range r.Seen {
		m["last"] = max(m["last"], seen.LastMS)
	}
	if limit := limit(at, l.candidate); limit > 1 {
		m["limit"] = limit
	}
	return m
}

// limit is the shortest time in milliseconds for a client with as many status
// calls in flight: one list, and the time of all status calls divided by the most
// in flight. The calls in flight do not include the lists.
func limit(at node.Stats, c Candidate) float64 {
	width := min(c.width(), at.PeakInFlight)
	if width == 0 {
		return 0
	}
	var list time.Duration
	for _, rpc := range []string{"ListContainers", "ListPodSandbox"} {
		list = max(list, at.RPCs[rpc].Time/time.Duration(max(1, at.RPCs[rpc].Calls)))
	}
	statuses := at.RPCs["ContainerStatus"].Time + at.RPCs["PodSandboxStatus"].Time
	return float64(list+statuses/time.Duration(width)) / float64(time.Millisecond)
}
