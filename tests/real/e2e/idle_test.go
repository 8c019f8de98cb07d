//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

const (
	idlePods = 110
	// mostOfIdle bounds the CPU time of an idle daemon that watches the shims, as a multiple of that
	// of a daemon that cannot.
	mostOfIdle = 1.15
	idleTime   = 2 * time.Minute
	// mostReads is how many files the watch may read for each shim in that time: twice its state every 5 s.
	mostReads = 2 * int(idleTime/(5*time.Second))
)

// Watching the shims of 110 pods costs next to nothing while nothing happens. Both daemons run at the same
// time, so that the load of the machine does not matter.
func TestIdleWatchOfShims(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	f.timeout = 5 * time.Minute
	f.runPods(ctx, idlePods)
	f.runContainers(ctx, func(int) lab.ContainerSpec { return lab.ContainerSpec{Name: "main", Program: lab.Pause()} })
	with := f.run(ctx, instanceOptions{name: "with", release: true})
	without := f.run(ctx, instanceOptions{name: "without", release: true, alone: true})
	f.awaitAll(ctx)
	must(t, backoff.Wait(ctx, 30*time.Second)) // by then all shims are found, and both daemons have collected their garbage
	watches, other, read := cpu(t, with.PID()), cpu(t, without.PID()), reads(t, with.PID())-reads(t, without.PID())
	must(t, backoff.Wait(ctx, idleTime))
	watches, other, read = cpu(t, with.PID())-watches, cpu(t, without.PID())-other, reads(t, with.PID())-reads(t, without.PID())-read
	ratio := float64(watches) / float64(other)
	perSecond := func(d time.Duration) time.Duration { return (d / (idleTime / time.Second)).Round(time.Microsecond) }
	values, err := with.Metrics(ctx)
	must(t, err)
	t.Logf("FIGURE an idle second with %d pods costs %v, without the shims %v: %.2f; %d reads more; resident %.0f MiB", idlePods,
		perSecond(watches), perSecond(other), ratio, read, values["process_resident_memory_bytes"]/(1<<20))
	if ratio > mostOfIdle {
		t.Errorf("the watch costs %.2f of a daemon without it, want at most %.2f", ratio, mostOfIdle)
	}
	if read > mostReads*idlePods {
		t.Errorf("the watch reads %d times more, want at most %d", read, mostReads*idlePods)
	}
	// The measured difference is the watch: one daemon finds a shim that does not run, and the other
	// cannot.
	pod := f.pods[0]
	must(t, f.lab.FreezeShim(ctx, pod))
	must(t, eventually(ctx, func() bool { s, err := with.status(ctx); return err == nil && len(nodestate.Of(s.Details).Stuck) == 1 }))
	if s, err := without.status(ctx); err != nil || len(nodestate.Of(s.Details).Stuck) > 0 {
		t.Errorf("the daemon without the processes finds %+v, %v", nodestate.Of(s.Details).Stuck, err)
	}
	must(t, f.lab.ThawShim(pod))
}

// cpu returns the CPU time of a process.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	const scheduled = 2 // CPUCLOCK_SCHED in linux/posix-timers.h
	var ts unix.Timespec
	must(t, unix.ClockGettime(int32(^pid<<3|scheduled), &ts))
	return time.Duration(ts.Nano())
}

// reads returns how often a process has read from files and sockets.
func reads(t *testing.T, pid int) (n int) {
	t.Helper()
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	must(t, err)
	_, text, _ := strings.Cut(string(io), "syscr: ")
	_, err = fmt.Sscan(text, &n)
	must(t, err)
	return n
}

// hideProcesses returns a program that runs another one, which sees no process but itself.
func hideProcesses(t *testing.T, program string) string {
	t.Helper()
	dir := process.Dir(t)
	file, all := filepath.Join(dir, "alone"), filepath.Join(dir, "proc")
	must(t, os.Mkdir(all, 0o755))
	hide := "mount --bind /proc " + all + " && mount -t tmpfs none /proc && mkdir /proc/self && mount --bind " + all + "/$$ /proc/self"
	script := "#!/bin/sh\nexec unshare --mount sh -c '" + hide + " && exec " + program + " \"$@\"' sh \"$@\"\n"
	must(t, os.WriteFile(file, []byte(script), 0o755))
	return file
}

// The work of an idle daemon is counted, not timed. A list of all pods takes two calls.
const (
	restTime       = 20 * time.Second
	mostCalls      = 2*int(restTime/time.Second) + 4 // and the calls for the version
	mostGoroutines = 80                              // goroutines of a daemon with a page and a socket
	mostCycles     = 6                               // of the garbage collector, each of some MiB allocated
	// mostReadsOfIdle are reads of sockets and of /proc: of the calls, and of the state of the node each 5 s.
	mostReadsOfIdle = 12 * mostCalls
)

// An idle node costs its daemon few calls, goroutines, allocations and reads.
func TestIdleNode(t *testing.T) {
	const pods = 5
	ctx, f := newFixture(t, lab.Options{})
	f.runPods(ctx, pods)
	f.runContainers(ctx, func(int) lab.ContainerSpec { return lab.ContainerSpec{Name: "main", Program: lab.Pause()} })
	in := f.run(ctx, instanceOptions{name: "daemon", release: true})
	f.awaitAll(ctx)
	must(t, backoff.Wait(ctx, 10*time.Second)) // all shims are found
	before, read := idleFigures(ctx, t, in), reads(t, in.PID())
	must(t, backoff.Wait(ctx, restTime))
	after, read := idleFigures(ctx, t, in), reads(t, in.PID())-read
	for name, most := range map[string]int{"calls": mostCalls, "statuses": 0, "cycles": mostCycles, "new goroutines": 4} {
		if n := int(after[name] - before[name]); n > most {
			t.Errorf("%d %s in %v, want at most %d", n, name, restTime, most)
		}
	}
	t.Logf("FIGURE %v of %d pods: %v, then %v, %d reads", restTime, pods, before, after, read)
	if n := int(after["new goroutines"]); n > mostGoroutines {
		t.Errorf("%d goroutines, want at most %d", n, mostGoroutines)
	}
	if read > mostReadsOfIdle {
		t.Errorf("%d reads, want at most %d", read, mostReadsOfIdle)
	}
}

func idleFigures(ctx context.Context, t *testing.T, in *instance) map[string]float64 {
	t.Helper()
	_, statuses, calls := spent(ctx, t, in)
	values, err := in.Metrics(ctx)
	must(t, err)
	return map[string]float64{"calls": calls, "statuses": statuses, "cycles": values["go_gc_duration_seconds_count"], "new goroutines": values["go_goroutines"]}
}
