package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

const simulateLong = `Serve a simulated CRI runtime on a unix socket until SIGINT or SIGTERM.

Any CRI client can talk to it: this program, crictl, a test. Its pods crash, are
restarted, come and go as on a busy node, but there are no processes behind
them. It answers the runtime service and, for crictl, the image service.

--faults spoils calls: an error, a hang, slowness, a truncated stream or a
malformed answer, once, always for a while, or at random. What is to happen, the
faults and each change of a pod, follows from --seed. --record-schedule writes it
to a small file, which --replay plays: attach it to a bug report.`

const simulateExample = `  # 110 pods, as many as a node has by default, that change 20 times a second
  pleg-pipeline simulate --socket /tmp/cri.sock --pods 110 --churn-rate 20

  # in another terminal
  pleg-pipeline run -r unix:///tmp/cri.sock
  crictl -r unix:///tmp/cri.sock pods

  # a hang, and two faults that are drawn; and the same once more
  pleg-pipeline simulate --socket /tmp/cri.sock --seed 7 \
    --faults 'ContainerStatus/hang/once,*/*/*,*/error/random' --record-schedule bug.json
  pleg-pipeline simulate --socket /tmp/cri.sock --replay bug.json`

// simulateCommand is the command simulate with its flags.
type simulateCommand struct {
	simulation

	socket    string
	schedules scheduleFlags
	log       logFlags
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
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&c.socket, "socket", "", "`PATH` of the socket to make; a socket that nobody answers on any more is\nreplaced. Required, but for --record-schedule")
	cmd.Flags().IntVar(&c.pods, "pods", defaultPods, "`NUMBER` of pods, of two containers each")
	c.addFlags(cmd)
	c.schedules.add(cmd)
	c.log.add(cmd)
	return cmd
}

func (c *simulateCommand) validate(flags *pflag.FlagSet) error {
	if c.socket == "" && c.schedules.record == "" {
		return errors.New("--socket is required: the path of the socket to make, such as --socket /tmp/cri.sock")
	}
	if c.pods < 0 {
		return fmt.Errorf("--pods must not be negative, got %d", c.pods)
	}
	return errors.Join(c.simulation.validate(), c.schedules.validate(flags))
}

// serve serves the runtime, or if there is no socket only writes the schedule.
func (c *simulateCommand) serve(ctx context.Context, out console) error {
	if c.schedules.wanted() {
		s, err := c.schedule(ctx)
		if err != nil || c.socket == "" {
			return err
		}
		runtime, err := s.Runtime(simruntime.Options{Logger: out.log})
		if err != nil {
			return fmt.Errorf("simulate a runtime: %w", err)
		}
		what := fmt.Sprintf("%d pods, %d steps and %d faults in %v from the first call on", len(s.Pods), len(s.Steps), len(s.Faults), s.End())
		return c.listen(ctx, out, runtime, what, func(ctx context.Context) error { return play(ctx, out, s, runtime) })
	}
	runtime, err := c.start(out.log)
	if err != nil {
		return fmt.Errorf("simulate a runtime: %w", err)
	}
	return c.listen(ctx, out, runtime, c.String(), func(ctx context.Context) error { return c.churn(ctx, runtime) })
}

// listen serves the runtime while change changes it.
func (c *simulateCommand) listen(ctx context.Context, out console, runtime *simruntime.Runtime, what string, change func(context.Context) error) error {
	socket, err := filepath.Abs(c.socket)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	out.say(ctx, "serving a simulated runtime (%s) on unix://%s until interrupted", what, socket)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runtime.ListenAndServe(ctx, socket) })
	group.Go(func() error { return change(ctx) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
