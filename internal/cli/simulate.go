package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

const simulateLong = `Serve a simulated CRI runtime on a unix socket until SIGINT or SIGTERM.

Any CRI client can talk to it: this program, crictl, a test. Its pods crash, are
restarted, come and go as on a busy node, but there are no processes behind
them. It answers the runtime service and, for crictl, the image service.`

const simulateExample = `  # 110 pods, as many as a node has by default, that change 20 times a second
  pleg-pipeline simulate --socket /tmp/cri.sock --pods 110 --churn-rate 20

  # in another terminal
  pleg-pipeline run -r unix:///tmp/cri.sock
  crictl -r unix:///tmp/cri.sock pods`

// simulateCommand is the command simulate with its flags.
type simulateCommand struct {
	simulation

	socket string
	log    logFlags
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
			if err := c.validate(); err != nil {
				return err
			}
			return fail(c.serve(cmd.Context(), c.log.console(p.Err)))
		},
	}
	cmd.Flags().StringVar(&c.socket, "socket", "", "`PATH` of the socket to make (required); a socket that nobody answers on\nany more is replaced")
	cmd.Flags().IntVar(&c.pods, "pods", defaultPods, "`NUMBER` of pods, of two containers each")
	c.addFlags(cmd)
	c.log.add(cmd)
	return cmd
}

func (c *simulateCommand) validate() error {
	if c.socket == "" {
		return errors.New("--socket is required: the path of the socket to make, such as --socket /tmp/cri.sock")
	}
	if c.pods < 0 {
		return fmt.Errorf("--pods must not be negative, got %d", c.pods)
	}
	return c.simulation.validate()
}

func (c *simulateCommand) serve(ctx context.Context, out console) error {
	socket, err := filepath.Abs(c.socket)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	runtime, err := c.start(out.log)
	if err != nil {
		return fmt.Errorf("simulate a runtime: %w", err)
	}
	out.say(ctx, "serving a simulated runtime (%v) on unix://%s until interrupted", &c.simulation, socket)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runtime.ListenAndServe(ctx, socket) })
	group.Go(func() error { return c.churn(ctx, runtime) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
