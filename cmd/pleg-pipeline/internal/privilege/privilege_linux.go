package privilege

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// program is this program, even if its file was replaced.
const program = "/proc/self/exe"

// tried is the environment variable with the id of the process that has executed
// itself.
const tried = "PLEG_PIPELINE_DROPPED"

// Drop drops all capabilities, also for root, and the right to gain any by executing
// a program. If there is something to drop, it executes this program again with the
// same arguments and does not return: each thread has its own capabilities, and only
// a new program starts with a single thread. Call it before anything is opened.
//
// Drop returns nil if nothing is left to drop. It returns an error if it cannot drop
// the privileges; the program then still has them and must end.
func Drop() error {
	dropped, err := isDropped()
	if err != nil {
		return err
	}
	pid := strconv.Itoa(os.Getpid())
	if dropped {
		if os.Getenv(tried) == pid {
			// The kernel has named the process after the file, which is exe.
			_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
		}
		return nil
	}
	if os.Getenv(tried) == pid { // trying again would be an endless loop
		return errors.New("the program dropped its privileges but has some again")
	}
	if err := os.Setenv(tried, pid); err != nil {
		return fmt.Errorf("mark the new program: %w", err)
	}
	// This thread replaces all others. If something fails, the Go runtime discards
	// it instead, because its privileges now differ from theirs.
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		failed <- execAgain()
	}()
	return <-failed
}

// isDropped reports whether this thread, and so every thread it started, has no
// privileges left.
func isDropped() (bool, error) {
	forbidden, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("get no_new_privs: %w", err)
	}
	header, sets := capabilities()
	if err := unix.Capget(header, &sets[0]); err != nil {
		return false, fmt.Errorf("get capabilities: %w", err)
	}
	for _, s := range sets {
		if s.Effective|s.Permitted|s.Inheritable != 0 {
			return false, nil
		}
	}
	return forbidden == 1, nil
}

// execAgain drops the privileges of this thread and executes the program again.
func execAgain() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// The bounding set limits what a new program of root gets. Only root may
	// shrink it; for other users it is irrelevant.
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
			break
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	header, none := capabilities()
	if err := unix.Capset(header, &none[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, os.Args, os.Environ()))
}

// capabilities returns a header for this thread, and empty sets.
func capabilities() (*unix.CapUserHeader, *[2]unix.CapUserData) {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, new([2]unix.CapUserData)
}
