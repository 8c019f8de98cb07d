package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	kit "github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// While a call has not returned, or once it has failed, a runtime with a thread that waits in the kernel is
// reported as such. The test is inside the package, because the runtime of a test has no process of its own.
func TestRuntimeThatWaitsInTheKernel(t *testing.T) {
	const asRuntime = "PLEG_TEST_RUNTIME"
	if os.Getenv(asRuntime) != "" {
		waitInTheKernel()
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), asRuntime+"=1")
	pid := kit.Run(t, cmd).Process.Pid
	proc, times := os.DirFS("/proc"), 0
	kit.Eventually(t, "a thread that waits, not only for a moment", func(context.Context) error {
		if p, _ := process.Read(proc, pid); p.State != "S" || !process.Waits(proc, pid) {
			times = 0
		} else if times++; times == 3 {
			return nil
		}
		return errors.New("none does")
	})
	m, err := newMetrics(instrument.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{observed: newObserved(), metrics: m, inFlight: inFlight{calls: make(map[*pleg.Call]struct{})}}
	c.observed.last.Store(&connection{pid: pid})
	waits := func(when string, want bool) {
		t.Helper()
		now := nodestate.Of(c.Report().Details)
		if p := now.Process; p == nil || p.PID != pid || (p.State == "D") != want {
			t.Errorf("%s: the process is %+v, want state D: %t", when, p, want)
		}
	}
	waits("without a call", false)
	end := c.inFlight.begin(pleg.Call{Method: "Version"})
	waits("during a call", true)
	end()
	waits("after it", false)
	m.failed.Store(true)
	waits("after a call that failed", true)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "a process that is stopped, although a thread of it waits", func(context.Context) error {
		if p := nodestate.Of(c.Report().Details).Process; p.State != "T" || !process.Waits(proc, pid) {
			return fmt.Errorf("the process is %+v", p)
		}
		return nil
	})
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := c.observed.ClientHandshake(t.Context(), "", conn); err != nil || c.observed.last.Load().pid != os.Getpid() {
		t.Errorf("a connection is to the process %d, %v, want %d", c.observed.last.Load().pid, err, os.Getpid())
	}
	c.observed.last.Store(&connection{pid: os.Getpid()})
	if p := nodestate.Of(c.Report().Details).Process; p != nil {
		t.Errorf("a runtime in this process is reported as %+v", p)
	}
}

// Only a runtime that has accepted a connection and sends nothing is silent.
func TestSilent(t *testing.T) {
	for reason, want := range map[string]bool{
		"error reading server preface: context deadline exceeded":                         true,
		"error reading server preface: read unix @->/s: use of closed network connection": true,
		"error reading server preface: EOF":                                               false,
		"error reading server preface: read unix @->/s: connection reset by peer":         false,
		"error reading server preface: http2: frame too large":                            false,
		"transport: Error while dialing: dial unix /s: connect: connection refused":       false,
	} {
		if got := silent(status.Error(codes.Unavailable, "connection error: desc = "+reason)); got != want {
			t.Errorf("%s: silent: %t, want %t", reason, got, want)
		}
		if silent(status.Error(codes.Internal, reason)) {
			t.Errorf("an internal error is taken for silence: %s", reason)
		}
	}
}

// waitInTheKernel makes a thread wait in the kernel until its child ends, as vfork does. It is not the
// first thread, whose state is that of the process.
func waitInTheKernel() {
	for range 2 {
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() == os.Getpid() {
				select {}
			}
			child, _, _ := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
			for child == 0 { // until its parent ends
				_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}()
	}
	select {}
}
