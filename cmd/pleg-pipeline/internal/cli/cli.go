// Package cli is the program pleg-pipeline: one file for each command.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/privilege"
)

// Name is the name of the program, and the prefix of what it says on stderr.
const Name = "pleg-pipeline"

// Exit codes.
const (
	ExitOK = 0
	// ExitFailure is for everything that goes wrong while a command runs.
	ExitFailure = 1
	// ExitUsage is for a command line that cannot be understood.
	ExitUsage = 2
	// ExitUnhealthy is for a doctor that has found a problem.
	ExitUnhealthy = 3
)

// Process is what a command needs of the process it runs in.
type Process struct {
	// Args are the arguments without the name of the program.
	Args []string
	// Out gets what the user asked for, Err everything else.
	Out, Err io.Writer
	// Getenv returns the value of an environment variable, or "".
	Getenv func(string) string
	// Drop gives up what a daemon does not need; nil to keep it. See
	// privilege.Drop.
	Drop func() error
	// Pressure contains the kernel's pressure figures. If nil, /proc/pressure.
	Pressure fs.FS
}

func (p Process) pressure() fs.FS {
	if p.Pressure == nil {
		return os.DirFS("/proc/pressure")
	}
	return p.Pressure
}

// oneSignal is how far apart two signals may be that are one: timeout(1) sends
// its own to the program and then to the group that the program is in.
const oneSignal = 100 * time.Millisecond

// Main runs the program with the arguments, streams and signals of this process
// and returns its exit code.
func Main() int {
	// A write to a closed pipe is to fail instead of killing the process, so
	// that "pleg-pipeline run | head" cleans up and exits with 0.
	signal.Ignore(syscall.SIGPIPE)
	// The first signal ends the program in order, the second one at once. Nothing
	// else gives the signals back: one more would spoil the exit code.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneSignal, stop) })
	return Execute(ctx, Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Drop: privilege.Drop})
}

// Execute runs one command until it is done or ctx ends, and returns the exit
// code. The end of ctx is a normal end.
func Execute(ctx context.Context, p Process) int {
	root := newRoot(p) //nolint:contextcheck // cobra hands ctx to the commands
	command, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, errOutputClosed) {
		return ExitOK
	}
	if errors.Is(err, errUnhealthy) {
		return ExitUnhealthy // the report says why
	}
	fmt.Fprintf(p.Err, "%s: %s\n", Name, printable(err.Error()))
	if errors.As(err, new(failure)) {
		return ExitFailure
	}
	fmt.Fprintf(p.Err, "Run '%s --help' for usage.\n", command.CommandPath())
	return ExitUsage
}

// failure marks an error of a command that has understood its arguments. Every
// other error is one of usage.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// fail marks err, if it is one, as a failure.
func fail(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}
