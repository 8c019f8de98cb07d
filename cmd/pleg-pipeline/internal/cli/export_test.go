package cli

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// Release sets what the linker sets in a release, until the end of the test.
func Release(t testing.TB, of, commit string) {
	oldVersion, oldRevision := version, revision
	t.Cleanup(func() { version, revision = oldVersion, oldRevision })
	version, revision = of, commit
}

// BuildOf returns the version and the commit of a build.
var BuildOf = buildOf

// Identify keeps the name and version of a runtime.
var Identify = identify

// NewBuildMetric returns pleg_build_info.
var NewBuildMetric = newBuildMetric

// Defaults returns where a process finds what it does not name.
func Defaults() (pressure, cgroups, proc fs.FS, sockets []string) {
	p := Process{}.withDefaults()
	return p.Pressure, p.Cgroups, p.Proc, p.Sockets
}

// Shipped are the flags of the command run in a release. Tests also use those of [forTests].
var Shipped = func() *pflag.FlagSet {
	c, cmd := &runCommand{}, &cobra.Command{}
	c.addFlags(cmd)
	forTests = "yes"
	return cmd.Flags()
}()

// OptionsOf returns the options of a pipeline and of its runtime's client that the flags of the
// command run set.
func OptionsOf(args ...string) (pipeline.Options, cri.Options, error) {
	c, cmd := &runCommand{}, &cobra.Command{}
	c.addFlags(cmd)
	err := cmd.ParseFlags(args)
	return c.pipeline.options(nil, nil, nil), c.pipeline.clientOptions(nil, nil), err
}

// Serve runs a daemon on listeners, each of which may be nil, and on a runtime that it dials with this function.
func Serve(ctx context.Context, p Process, web, health, socket net.Listener, dial func(context.Context, string) (net.Conn, error)) error {
	c, cmd := &runCommand{process: p.withDefaults()}, &cobra.Command{}
	c.addFlags(cmd)
	if err := cmd.ParseFlags(p.Args); err != nil {
		return err
	}
	c.pipeline.client.DialOptions = []grpc.DialOption{grpc.WithContextDialer(dial)}
	return c.serveOn(ctx, c.log.console(p.Err), endpoint.Endpoint{Address: cmp.Or(cmd.Flag("runtime-endpoint").Value.String(), "/simulated")}, web, health, socket)
}

// endless is a file whose end cannot be written, or nothing at all.
type endless struct {
	recording.Output

	err   error
	empty bool
}

// Write implements [io.Writer].
func (e endless) Write(p []byte) (int, error) {
	if e.empty {
		return len(p), nil
	}
	return e.Output.Write(p)
}

// Close implements [io.Closer].
func (e endless) Close() error { return e.err }

// RecordTo records a runtime for a tenth of a second to a file whose end cannot be written, or nothing at all.
func RecordTo(ctx context.Context, path, address string, failed error, empty bool) error {
	c, cmd := &recordCommand{file: path}, &cobra.Command{}
	c.addFlags(cmd)
	file, err := recording.Create(path)
	if err = cmp.Or(err, cmd.ParseFlags([]string{"--duration", "100ms"}), c.validate(cmd.Flags())); err != nil {
		return err
	}
	file.Output = endless{file.Output, failed, empty}
	return c.recordTo(ctx, c.log.console(io.Discard), endpoint.Endpoint{Address: address}, file)
}

// WatchOptionsOf returns the options with which "events" watches a cluster.
func WatchOptionsOf(stderr io.Writer, args ...string) (o fleet.WatchOptions, err error) {
	c, cmd := &eventsCommand{}, &cobra.Command{}
	c.addFlags(cmd)
	if err := cmp.Or(cmd.ParseFlags(args), c.validate(cmd.Flags())); err != nil {
		return o, err
	}
	s := fleetSource{flags: &c.fleet, out: c.log.console(stderr)}
	return s.watchOptions(context.Background(), c.options, func(error, time.Duration) {}), nil
}

// NewLog returns a log of level debug, whose lines are limited.
func NewLog(w io.Writer) *slog.Logger { return logFlags{level: "debug"}.console(w).log }

// NewConsole returns the log of these flags, and the function that prints a notice.
func NewConsole(w io.Writer, level, format string) (*slog.Logger, func(ctx context.Context, format string, args ...any)) {
	out := logFlags{level, format}.console(w)
	return out.log, out.say
}

// NewAsyncWriter returns the stderr of a daemon, and the function that closes it.
func NewAsyncWriter(w io.Writer, notice func(io.Writer, int64)) (stderr io.Writer, end func()) {
	a := newAsyncWriter(w, notice)
	return a, a.close
}

// PositionAfter returns where --since can continue after an event; "" if it cannot.
var PositionAfter = position

// PrintPods prints the pods of a state as "pods" does. missing is the error beside the state.
func PrintPods(p Process, state top.State, missing error, args ...string) error {
	c, cmd := &podsCommand{viewCommand: viewCommand{process: p.withDefaults(), needsPods: true}}, &cobra.Command{}
	c.addFlags(cmd)
	if err := cmp.Or(cmd.ParseFlags(args), c.validate(cmd.Flags())); err != nil {
		return err
	}
	return c.print(context.Background(), c.log.console(p.Err), known{state: state, err: missing})
}

// known is a source of one state.
type known struct {
	source

	state top.State
	err   error
}

func (k known) State(context.Context) (top.State, error) { return k.state, k.err }

// PodOfFleet returns what is shown of a pod of a cluster.
var PodOfFleet = fleetPod

// AnswerPlugin prints a report as "doctor --npd" does, and returns its exit code as an error.
func AnswerPlugin(out io.Writer, r *doctor.Report) error {
	return (&doctorCommand{process: Process{Out: out}}).answerPlugin(r, nil)
}

// ReplayEnded is the cause of the end of a command whose recording has been played.
var ReplayEnded error = replayEnded{}

// WhileRunning calls a function while others run.
var WhileRunning = whileRunning

// SilentNodes returns the number of silent nodes of a cluster, with a few of their names.
var SilentNodes = silentNodes

// SizeOf returns the bytes that the value of a flag means, such as 10GiB.
func SizeOf(text string) (int64, error) {
	var size sizeFlag
	err := size.Set(text)
	return int64(size), err
}

// Settle waits until a daemon of this process knows its pods, and lives on for a minute.
func Settle(ctx context.Context, dial func(context.Context, string) (net.Conn, error)) (took time.Duration, err error) {
	began := time.Now()
	err = useDaemon(ctx, Process{Dial: dial}, "in memory", func(ctx context.Context, from source) error {
		err := settle(ctx, logFlags{level: "error"}.console(io.Discard), from)
		took = time.Since(began)
		time.Sleep(time.Minute)
		return err
	})
	return took, err
}

// OnlyHung reports whether all pods that wait for their inspection hang.
var OnlyHung = onlyHung

// Progress is what /readyz?verbose says of a publisher, Partial what follows if something was too large.
var (
	Progress = progress
	Partial  = partial
)

// Resource returns the resource of log records from this node and cluster, as text.
func Resource(node, cluster string) (string, error) {
	f := publishFlags{}
	f.nats.cluster = cluster
	r, err := f.resource(node)
	return r.Encoded(attribute.DefaultEncoder()), err
}

// ParseFault returns the fault that a flag names. FindOrAddPod returns its pod.
var (
	ParseFault   = parseFault
	FindOrAddPod = findOrAddPod
)

// ChurnAfterCall changes three pods, except some, twice a second, from the first call on.
func ChurnAfterCall(ctx context.Context, node *simruntime.Runtime, seed uint64, keep ...pleg.PodUID) error {
	return (&simulation{pods: 3, seed: seed, churnRate: 2}).churnAfterCall(ctx, node, keep...)
}

// PodsOfSeed returns the pods with which a simulation begins.
func PodsOfSeed(seed uint64) []*pleg.PodStatus {
	return (&simulation{pods: 3, seed: seed}).start(nil).Pods()
}

// AllFlags returns the flags of all commands, as "run --nats".
func AllFlags() (names []string) {
	commands := []*cobra.Command{newRoot(Process{}.withDefaults())}
	for len(commands) > 0 {
		c := commands[0]
		commands = append(commands[1:], c.Commands()...)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && f.Name != "no-descriptions" { // cobra's
				names = append(names, strings.TrimPrefix(c.CommandPath(), Name+" ")+" --"+f.Name)
			}
		})
	}
	return names
}
