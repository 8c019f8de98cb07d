package pidfd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pleg-pipeline/pleg-pipeline/internal/containerindex"
)

// reapedWithin is how long the parent of a process may take to reap it: only then does the kernel
// report how it ended.
const reapedWithin = 200 * time.Millisecond

var errNoProcess = errors.New("no process in its cgroup, or in another pid namespace")

// process is a process that is the same until the end, although its number may be used again.
type process struct{ pidfd *os.File }

// openFirst opens the oldest process of a cgroup: runtimes start a container's first process
// before all others.
func openFirst(h containerindex.Host, cgroup string) (*process, error) {
	pid, began := oldest(h, cgroup)
	if pid == 0 {
		return nil, errNoProcess
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := &process{os.NewFile(uintptr(fd), "pidfd")}
	// Between the two calls, another process may have got the number.
	if again, at := oldest(h, cgroup); again != pid || at != began {
		p.close()
		return nil, errNoProcess
	}
	return p, nil
}

// oldest returns the first process of a cgroup, and its start in ticks since the boot; 0 if
// there is none.
func oldest(h containerindex.Host, cgroup string) (pid int, began uint64) {
	for _, other := range h.Processes(cgroup) {
		if at, ok := started(h, other); ok && (pid == 0 || at < began || at == began && other < pid) {
			pid, began = other, at
		}
	}
	return pid, began
}

// started returns the 22nd field of /proc/PID/stat, see proc_pid_stat(5). The second is in
// parentheses and may have any character.
func started(h containerindex.Host, pid int) (ticks uint64, ok bool) {
	text, err := os.ReadFile(filepath.Join(cmp.Or(h.Proc, "/proc"), strconv.Itoa(pid), "stat"))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if err != nil || len(fields) < 20 {
		return 0, false
	}
	ticks, err = strconv.ParseUint(fields[19], 10, 64)
	return ticks, err == nil
}

func (p *process) close() { _ = p.pidfd.Close() }

// wait reports whether the process has ended; false if ctx ends first.
func (p *process) wait(ctx context.Context) bool {
	defer context.AfterFunc(ctx, func() { _ = p.pidfd.SetReadDeadline(time.Unix(1, 0)) })()
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	return err == nil && ctx.Err() == nil
}

// exitCode returns how the process ended, once its parent has reaped it; nil if the kernel does not
// report it.
func (p *process) exitCode(ctx context.Context) *int32 {
	ctx, cancel := context.WithTimeout(ctx, reapedWithin)
	defer cancel()
	raw, err := p.pidfd.SyscallConn()
	for err == nil {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		var refused error
		err = raw.Control(func(fd uintptr) { refused = unix.IoctlPidfdInfo(int(fd), &info) })
		if err == nil && refused == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			status := unix.WaitStatus(info.Exit_code)
			code := int32(status.ExitStatus())
			if status.Signaled() {
				code = 128 + int32(status.Signal())
			}
			return &code
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
