package privilege

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// program is this program, whatever has become of its file.
const program = "/proc/self/exe"

// tried is the environment variable that has the id of a process which has been
// run anew.
const tried = "PLEG_PIPELINE_DROPPED"

// Drop gives up all capabilities, for root too, and the right to gain any by
// running another program. If there is something to give up, it runs the program
// anew with the same arguments and does not return: what may be given up is a
// matter of each thread, and only a new program begins with one. Call it before
// anything is opened. It returns nil if nothing is left to be given up, and
// otherwise why this cannot be done; nothing has changed then for this program,
// other than that it may have run anew.
func Drop() error {
	dropped, err := isDropped()
	if err != nil || dropped {
		return err
	}
	pid := strconv.Itoa(os.Getpid())
	if os.Getenv(tried) == pid { // once more would be for ever
		return errors.New("the program was run without privileges and has some again")
	}
	if err := os.Setenv(tried, pid); err != nil {
		return fmt.Errorf("mark the program that is run anew: %w", err)
	}
	// This thread takes the place of all others, unless something fails; it is
	// then thrown away, since it is not like the others any more.
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		failed <- again()
	}()
	return <-failed
}

// isDropped reports whether this thread, and so every one that it has started,
// has nothing left.
func isDropped() (bool, error) {
	forbidden, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("ask for no_new_privs: %w", err)
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

// again gives up what this thread has and runs the program with what is left.
func again() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// Without no_new_privs this is what a new program of root's would get. It
	// takes a capability that a user does not have, who has none to give either.
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

// capabilities returns a header for this thread, and room for its sets.
func capabilities() (*unix.CapUserHeader, *[2]unix.CapUserData) {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, new([2]unix.CapUserData)
}
