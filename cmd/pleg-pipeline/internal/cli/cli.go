// Package cli is the program pleg-pipeline. Each command is in a file of its own; the command run
// is in four more: daemon.go, pipelineflags.go, settings.go and publish.go. The other files contain
// code that several commands share.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
)

// Name is the name of the program and the prefix of its notices on stderr.
const Name = "pleg-pipeline"

// exit is an exit code as an error. The output explains it.
type exit int

// Error implements error.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Exit codes.
const (
	ExitOK = 0
	// ExitFailure means that a command failed after it began its work.
	ExitFailure = 1
	// ExitUsage means that the command line is wrong.
	ExitUsage = 2
	// ExitUnhealthy means that doctor found a problem.
	ExitUnhealthy = 3
)

// Process gives a command the arguments, streams and environment of its process.
type Process struct {
	// Args are the arguments without the name of the program.
	Args []string
	// Out gets the requested output, Err everything else.
	Out, Err io.Writer
	// Getenv returns the value of an environment variable, or "". If nil, none is set.
	Getenv func(string) string
	// Environ returns all environment variables as NAME=VALUE. If nil, misspelt
	// names are not found.
	Environ func() []string
	// Dial connects to the socket of a daemon. If nil, it is the dialer of the system.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
	// Terminal returns the screen of the command top. If nil, the screen of this process.
	Terminal func() (tcell.Screen, error)
	// Pressure contains the kernel's pressure figures. If nil, /proc/pressure.
	// Cgroups contains the cgroups. If nil, /sys/fs/cgroup.
	// Proc contains the processes. If nil, /proc.
	Pressure, Cgroups, Proc fs.FS
	// Config is the configuration of crictl that is read if no other is named. If empty, /etc/crictl.yaml.
	Config string
	// Sockets are the endpoints of runtimes that are tried last. If nil, the well-known endpoints.
	Sockets []string
}

// withDefaults completes p with the facilities of the system.
func (p Process) withDefaults() Process {
	if p.Dial == nil {
		p.Dial = func(ctx context.Context, socket string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	if p.Getenv == nil {
		p.Getenv = func(string) string { return "" }
	}
	if p.Environ == nil {
		p.Environ = func() []string { return nil }
	}
	p.Pressure = cmp.Or(p.Pressure, os.DirFS("/proc/pressure"))
	p.Cgroups = cmp.Or(p.Cgroups, os.DirFS("/sys/fs/cgroup"))
	p.Proc = cmp.Or(p.Proc, os.DirFS("/proc"))
	p.Config = cmp.Or(p.Config, endpoint.DefaultConfig)
	if p.Sockets == nil {
		p.Sockets = endpoint.WellKnown()
	}
	return p
}

// oneSignal is the time within which two signals count as one: timeout(1) sends
// its signal to the program and then to the program's process group.
const oneSignal = 100 * time.Millisecond

// gcPercent replaces Go's default of 100. The heap is small, and much of it is garbage of the last
// list. To collect that sooner saves a daemon of 1,000 pods 2 MiB and costs it at most 1 ms of CPU
// a second. GOGC overrides it.
const gcPercent = 50

// Main runs the program with the arguments, streams and signals of this process
// and returns its exit code.
func Main() int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// A write to a closed pipe must return an error instead of killing the
	// process, so that "pleg-pipeline run | head" cleans up and exits with 0.
	signal.Ignore(syscall.SIGPIPE)
	// The first signal ends the program in order, the second one at once. Only
	// the timer restores the default signal handling: if anything else did it
	// earlier, the second of two signals that count as one would kill the program.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup(1) ignores it
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneSignal, stop) })
	return Execute(ctx, Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Environ: os.Environ})
}

// Execute runs one command until it ends or ctx does, and returns the exit code.
// The end of ctx is a normal end.
func Execute(ctx context.Context, p Process) int {
	root := newRoot(p.withDefaults()) //nolint:contextcheck // cobra passes ctx to the commands
	command, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, errOutputClosed) {
		return ExitOK
	}
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	text := strings.ReplaceAll(err.Error(), "\t", "  ")
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && !errors.Is(err, strconv.ErrRange) {
		if want := wanted[invalid.GetFlag().Value.Type()]; want != "" { // otherwise the error says it
			text = strings.Replace(text, invalid.Unwrap().Error(), "want "+want, 1)
		}
	}
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		text += "; root may be needed: try sudo"
	}
	fmt.Fprintf(p.Err, "%s: %s\n", Name, notice(text))
	if errors.As(err, new(failure)) {
		return ExitFailure
	}
	fmt.Fprintf(p.Err, "Run '%s --help' for usage.\n", command.CommandPath())
	return ExitUsage
}

// wanted describes the values of each type of flag, in place of an error of Go's parser.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a time with its unit, such as 10s", "float64": "a number",
	"int": "a whole number", "uint64": "a whole number that is not negative",
}

// failure marks an error of a command whose arguments were correct. Every other
// error is a usage error.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func fail(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

const rootLong = `pleg-pipeline reports what happens to the pods of this node: containers that
start, exit and are removed. It does the work of the kubelet's PLEG (Pod
Lifecycle Event Generator).

It lists the pods of a CRI runtime (containerd, CRI-O) once a second, inspects
the pods that changed, several at the same time, and prints the events or serves
them to other programs. It changes nothing in the runtime. To try it without one:
  pleg-pipeline run --simulate

Exit codes:
  0  the command finished, or a signal or the reader of its output ended it
  1  the runtime, the daemon, the address or the output cannot be used
  2  the command line is wrong
  3  "pleg-pipeline doctor" found a problem`

func newRoot(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:           Name,
		Short:         "Pod lifecycle events of a container runtime",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionLine(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version") // cobra's own uses the shorthand of --log-level
	root.SetArgs(p.Args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	run := newRun(p)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Hidden { // such as the command that completes words for a shell
			return nil
		}
		return checkVariables(run.Flags(), p.Environ())
	}
	root.AddCommand(run, newEvents(p), newPods(p), newLookup(p), newTop(p), newFleet(p), newDoctor(p), newSimulate(p), newRecord(p), newVersion())
	root.InitDefaultCompletionCmd(p.Args...)
	for _, cmd := range root.Commands() {
		if !cmd.Runnable() {
			cmd.RunE, cmd.DisableFlagsInUseLine = needsSubcommand, true
		}
	}
	return root
}

// needsSubcommand is the work of a command with subcommands. Without it, cobra prints the
// help for a subcommand that does not exist, too.
func needsSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("%s needs one of %s", cmd.Name(), strings.Join(names, ", "))
}
