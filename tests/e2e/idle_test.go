//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// With events, an idle node is listed once instead of each second. The log has
// the CPU time of this process and of containerd, which is never quite idle.
func TestIdleNodeIsListedOnceWithEvents(t *testing.T) {
	const pods, span = 100, time.Minute
	ctx, f := newFixture(t, lab.Options{})
	specs := make([]lab.PodSpec, pods)
	for i := range specs {
		specs[i] = lab.PodSpec{Name: fmt.Sprint("idle-", i), HostNetwork: true}
	}
	_, err := f.lab.RunPods(ctx, specs)
	must(t, err)
	_, alone := cpuTimes(ctx, t, f.lab, span)
	pollAgent, pollRuntime, pollLists := idle(ctx, t, f.lab, span, pipeline.Options{})
	eventAgent, eventRuntime, eventLists := idle(ctx, t, f.lab, span, pipeline.Options{Events: pipeline.EventsAuto})
	share := func(d time.Duration) string {
		return fmt.Sprintf("%v (%.2f %% of a core)", d, 100*d.Seconds()/span.Seconds())
	}
	t.Logf("%d pods, CPU time in %v: containerd alone %s", pods, span, share(alone))
	t.Logf("a relist each second: containerd %s, this process %s, %d lists", share(pollRuntime), share(pollAgent), pollLists)
	t.Logf("with events: containerd %s, this process %s, %d lists", share(eventRuntime), share(eventAgent), eventLists)
	if eventLists > 3 || pollLists < 20 {
		t.Errorf("%d lists with events, want one at the start and one for the stream; %d without, want one each second", eventLists, pollLists)
	}
}

// idle runs a pipeline on an idle runtime and returns what it costs.
func idle(ctx context.Context, t *testing.T, l *lab.Lab, span time.Duration, o pipeline.Options) (agent, runtime time.Duration, lists int64) {
	t.Helper()
	client, err := cri.New(l.Endpoint(), cri.Options{})
	must(t, err)
	counted := &countedLists{Client: client}
	o.Runtime = counted
	p, err := pipeline.New(o)
	must(t, err)
	runCtx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- p.Run(runCtx) }()
	must(t, eventually(ctx, func() bool { ok, _ := p.Healthy(); return ok }))
	agent, runtime = cpuTimes(ctx, t, l, span)
	lists = counted.lists.Load()
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Errorf("run pipeline: got %v, want %v", err, context.Canceled)
	}
	must(t, client.Close())
	return agent, runtime, lists
}

// cpuTimes returns the CPU time of this process and of containerd in a span,
// after 3 s for whatever the start caused.
func cpuTimes(ctx context.Context, t *testing.T, l *lab.Lab, span time.Duration) (agent, runtime time.Duration) {
	t.Helper()
	daemon := peer(t, socket(l))
	must(t, sleepUntil(ctx, time.Now().Add(3*time.Second)))
	agent, runtime = ownCPU(t), processCPU(t, daemon)
	must(t, sleepUntil(ctx, time.Now().Add(span)))
	return ownCPU(t) - agent, processCPU(t, daemon) - runtime
}

// countedLists counts the lists of all pods.
type countedLists struct {
	*cri.Client
	lists atomic.Int64
}

func (c *countedLists) ListPods(ctx context.Context) ([]*pipeline.Pod, error) {
	c.lists.Add(1)
	return c.Client.ListPods(ctx)
}

// peer returns the process that listens on a unix socket.
func peer(t *testing.T, path string) int {
	t.Helper()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	must(t, err)
	var cred *syscall.Ucred
	must(t, raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}))
	must(t, err)
	return int(cred.Pid)
}

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// processCPU returns the CPU time of a process; the kernel counts it in 1/100 s.
func processCPU(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
