package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// lab is one simulated runtime and one candidate that is connected to it, in a process of
// its own. The runtime works in this process, which does nothing else meanwhile. After an
// error the candidate does nothing more.
type lab struct {
	candidate Candidate
	runtime   *simruntime.Runtime
	client    *probe.Child
	err       error
}

// inLab returns a measurement that does its work in a new lab. The candidate's process runs, but
// the candidate itself starts in [lab.startClient]. If carried, sandbox statuses carry the
// container statuses.
func inLab(period, timeout time.Duration, carried bool, do func(context.Context, *lab) Metrics) func(context.Context, *bench, Candidate) (Metrics, error) {
	return func(ctx context.Context, b *bench, c Candidate) (Metrics, error) {
		b.labs++
		socket := filepath.Join(b.temp, fmt.Sprintf("cri-%d.sock", b.labs))
		sim := simruntime.New(simruntime.Options{Seed: 1, StatusesInSandbox: carried})
		listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("simulate a node: %w", err)
		}
		serving, stop := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() { served <- sim.Serve(serving, listener) }()
		l := &lab{candidate: c, runtime: sim}
		l.connect(ctx, b, socket, period, timeout)
		m := do(ctx, l)
		l.client.Stop()
		stop()
		if err := <-served; !errors.Is(err, context.Canceled) {
			l.fail(err)
		}
		return m, l.err
	}
}

// connect starts the process of the candidate. It will connect to the socket.
func (l *lab) connect(ctx context.Context, b *bench, socket string, period, timeout time.Duration) {
	args := []string{"-socket", socket, "-period", period.String(), "-timeout", timeout.String()}
	program, c := "client", l.candidate
	switch c {
	case kubelet, smallStep, dropIn:
		if program = "kubelet"; c == smallStep {
			program = "small-step"
		}
		args = append(args, "-root", b.temp, "-drop-in="+strconv.FormatBool(c == dropIn))
	default:
		args = append(args, "-inspectors", strconv.Itoa(c.inspectors()), "-events="+strconv.FormatBool(c.events()))
	}
	l.client, l.err = probe.StartChild(ctx, filepath.Join(b.bin, program), args...)
}

func (l *lab) call(method string, argument any) (r probe.Report) {
	if l.err == nil {
		l.err = l.client.Call(method, argument, &r)
	}
	return r
}

func (l *lab) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *lab) pause(ctx context.Context, d time.Duration) {
	if l.err == nil {
		l.err = backoff.Wait(ctx, d)
	}
}

// window measures change from its beginning to the last wanted event. The lab fails if other
// events than the wanted ones arrived: then the candidate did other work.
func (l *lab) window(want map[string]int, change func()) probe.Report {
	l.call("Expect", want)
	change()
	r := l.call("Wait", longest)
	l.fail(verify(r, want))
	return r
}

// startClient starts the candidate and waits for its first events.
func (l *lab) startClient(want map[string]int) probe.Report {
	return l.window(want, func() { l.call("Start", nil) })
}

// streamUp is the time in which a candidate must rely on its event stream and make the list that
// follows.
const streamUp = 2 * time.Second

// populate adds pods and starts the candidate, which then knows all of them and, if
// it follows CRI events, relies on its event stream.
func (l *lab) populate(ctx context.Context, pods, containers int) {
	l.runtime.Populate(simruntime.Population{Pods: pods, Containers: containers})
	l.startClient(started(pods, containers))
	if l.candidate.events() {
		l.pause(ctx, streamUp)
	}
}

// shape sets the latency, in place of all faults, and the number of calls that execute at once; 0 means no
// limit.
func (l *lab) shape(profile string, limit int) {
	l.runtime.SetMaxConcurrent(limit)
	l.runtime.ClearAll()
	if profile == "node" {
		for _, f := range simruntime.BusyNode() {
			l.runtime.Inject(f)
		}
	}
}

// hang makes the status calls of the first pods hang until their deadline.
func (l *lab) hang(pods int) {
	for _, p := range l.runtime.Pods()[:pods] {
		l.runtime.Inject(simruntime.Fault{PodUID: p.UID, Hang: true})
	}
}

// reset sets the counters of calls to zero.
func (l *lab) reset() {
	runtime.GC() // the garbage of earlier measurements costs this one nothing
	l.runtime.ResetStats()
}

// burst resets the counters and changes pods in one step.
func (l *lab) burst(pods int, change simruntime.Change) {
	l.reset()
	l.runtime.Burst(pods, change)
}

// replace replaces the first container of one pod after the other, a number of times, at a rate per
// second. The pods take turns: two changes of one pod are as far apart as possible, so that a
// relist sees both. It returns each new container and its time.
func (l *lab) replace(ctx context.Context, times int, rate float64) (made []probe.Arrival) {
	l.reset()
	pods, began := l.runtime.Pods(), time.Now()
	for i := range times {
		l.pause(ctx, time.Until(began.Add(time.Duration(float64(i)/rate*float64(time.Second)))))
		if l.err != nil {
			return nil
		}
		var next *pleg.ContainerStatus
		l.runtime.Update(func(s *simruntime.State) {
			pod := s.Pod(pods[i%len(pods)].UID)
			var err error
			next, err = s.RestartContainer(pod.Containers[0].ID)
			l.fail(errors.Join(err, s.PruneDead(pod.UID)))
		})
		made = append(made, probe.Arrival{ID: string(next.ID), UnixNS: time.Now().UnixNano()})
	}
	return made
}

// lists returns the number of lists since the last reset.
func (l *lab) lists() int64 { return l.runtime.Stats().RPCs["ListContainers"].Calls }

// statusCalls is the number of calls for the status of a sandbox or a container.
func statusCalls(s simruntime.Stats) int64 {
	return s.RPCs["ContainerStatus"].Calls + s.RPCs["PodSandboxStatus"].Calls
}

func verify(r probe.Report, want map[string]int) error {
	got := make(map[string]int, len(r.Seen))
	for name, seen := range r.Seen {
		got[name] = seen.Count
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("wrong work: got events %v, want %v (done: %t)", got, want, r.Done)
	}
	return nil
}

// burstMetrics combines the figures of the client with the counters of the runtime.
func (l *lab) burstMetrics(r probe.Report, pods int) Metrics {
	at := l.runtime.Stats()
	m := Metrics{
		"client": r.Usage.CPUSeconds * 1e3, "allocs": float64(r.Usage.Allocs), "calls": float64(statusCalls(at)) / float64(pods),
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
func limit(at simruntime.Stats, c Candidate) float64 {
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
