package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const simulateLong = `Serve a simulated CRI runtime on a unix socket until SIGINT or SIGTERM.

Any CRI client can use it: this program, crictl, a test. Its pods crash, restart,
come and go as on a busy node, but no processes run. It serves the runtime
service and, for crictl, the image service.

--faults injects faults into calls: an error, a hang, a delay, a truncated stream
or a malformed answer; once, always for a while, or at random. --seed determines
the pods, their changes and the faults: the same flags repeat a run.`

const simulateExample = `  # 110 pods, as many as a node has by default, that change 20 times a second
  pleg-pipeline simulate --socket /tmp/cri.sock --pods 110 --churn-rate 20

  # in another terminal
  pleg-pipeline run -r unix:///tmp/cri.sock
  crictl -r unix:///tmp/cri.sock pods

  # a hang, and two faults drawn from the seed
  pleg-pipeline simulate --socket /tmp/cri.sock --seed 7 \
    --faults 'ContainerStatus/hang/once,*/*/*,*/error/random'`

const (
	defaultFaultsDuration = time.Minute
	// faultyStreamBatch makes the streamed list of a few pods more than one
	// message, so that a fault can truncate it.
	faultyStreamBatch = 10
)

// simulateCommand is the command simulate with its flags.
type simulateCommand struct {
	simulation

	socket   string
	patterns []string
	duration time.Duration
	faults   []simruntime.Fault // drawn by validate
	log      logFlags
}

func newSimulate(p Process) *cobra.Command {
	var c simulateCommand
	cmd := &cobra.Command{
		Use:     "simulate --socket PATH",
		Short:   "Serve a simulated container runtime for other programs",
		Long:    simulateLong,
		Example: simulateExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(cmd.Flags()); err != nil {
				return err
			}
			return fail(c.serve(cmd.Context(), c.log.console(p.Err)))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&c.socket, "socket", "", "`PATH` of the socket to create; replaces a socket that no process serves.\nRequired")
	flags.IntVar(&c.pods, "pods", defaultPods, "`NUMBER` of pods, of two containers each")
	c.addFlags(cmd)
	flags.StringSliceVar(&c.patterns, "faults", nil,
		"`FAULTS` to inject, as CALL/KIND/WHEN,..., such as\nContainerStatus/hang/once; * stands for one drawn from the seed")
	flags.DurationVar(&c.duration, "duration", defaultFaultsDuration,
		"with --faults, `TIME` after which the faults end and pods no longer change;\nwithout, pods change until the end")
	c.log.add(cmd)
	return cmd
}

func (c *simulateCommand) validate(flags *pflag.FlagSet) error {
	if c.socket == "" {
		return errors.New("--socket is required: the path of the socket to create, such as --socket /tmp/cri.sock")
	}
	if c.pods < 0 {
		return fmt.Errorf("--pods must not be negative, got %d", c.pods)
	}
	if c.duration <= 0 {
		return fmt.Errorf("--duration must be longer than 0, got %v", c.duration)
	}
	if flags.Changed("duration") && len(c.patterns) == 0 {
		return errors.New("--duration needs --faults")
	}
	var err error
	if c.faults, err = simruntime.DrawFaults(c.seed, c.duration, c.patterns...); err != nil {
		return fmt.Errorf("--faults: %w", err)
	}
	if len(c.faults) > 0 {
		c.streamBatch = faultyStreamBatch
	}
	return c.simulation.validate()
}

// serve serves the runtime while its pods change.
func (c *simulateCommand) serve(ctx context.Context, out console) error {
	socket, err := filepath.Abs(c.socket)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	runtime, err := c.start(out.log)
	if err != nil {
		return fmt.Errorf("simulate a runtime: %w", err)
	}
	out.say(ctx, "serving a simulated runtime (%v) on unix://%s until interrupted", c, socket)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runtime.ListenAndServe(ctx, socket) })
	group.Go(func() error {
		if len(c.faults) > 0 {
			return c.playFaults(ctx, out, runtime)
		}
		return c.churn(ctx, runtime, 0)
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *simulateCommand) String() string {
	if len(c.faults) == 0 {
		return c.simulation.String()
	}
	return fmt.Sprintf("%v, %d faults within %v of the first call", &c.simulation, len(c.faults), c.duration)
}

// playFaults injects the faults and changes the pods from the first call of a
// client until the end of --duration.
func (c *simulateCommand) playFaults(ctx context.Context, out console, runtime *simruntime.Runtime) error {
	for _, f := range c.faults {
		out.log.DebugContext(ctx, "fault drawn", slog.Group("fault", "pattern", f.String(), "from", f.From, "until", f.Until))
	}
	group, playing := errgroup.WithContext(ctx)
	group.Go(func() error { return runtime.Play(playing, c.faults...) })
	group.Go(func() error {
		select {
		case <-runtime.Called():
		case <-playing.Done():
			return context.Cause(playing)
		}
		changes := int(c.churnRate * c.duration.Seconds())
		if changes == 0 {
			return nil
		}
		return c.churn(playing, runtime, changes)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	out.say(ctx, "the faults have ended: %s", spoiledCalls(runtime.Stats()))
	return nil
}

// spoiledCalls returns how many calls faults have hit.
func spoiledCalls(stats simruntime.Stats) string {
	var parts []string
	for _, rpc := range slices.Sorted(maps.Keys(stats.RPCs)) {
		if r := stats.RPCs[rpc]; r.Spoiled > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s", r.Spoiled, r.Calls, rpc))
		}
	}
	if len(parts) == 0 {
		return "no call was hit"
	}
	return "they hit " + strings.Join(parts, ", ")
}
