package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/internal/endpoint"
)

const runLong = `Print the pod lifecycle events of a CRI runtime until SIGINT or SIGTERM.

Events go to stdout, everything else to stderr. The first list of the runtime
gives an event for every container and sandbox there is. A sandbox, which holds
a pod's network and other namespaces, counts as a container of its pod.

The runtime is found as crictl finds it; the first of these counts:
  1. --runtime-endpoint
  2. the environment variable CONTAINER_RUNTIME_ENDPOINT
  3. runtime-endpoint in the file named by --config or by the environment
     variable CRI_CONFIG_FILE, otherwise in /etc/crictl.yaml
  4. the well-known sockets of containerd, CRI-O, cri-dockerd and k3s

--listen serves /metrics, /livez (the process works) and /readyz (it sees the
runtime) over HTTP. /livez and /readyz know ?verbose.

A first Ctrl-C ends the program in order, a second one at once.`

const runExample = `  # see it work without a runtime
  pleg-pipeline run --simulate

  # the runtime of this node, one JSON object a line
  pleg-pipeline run -o json | jq 'select(.reason == "OOMKilled")'

  # a given runtime, with metrics on http://127.0.0.1:9090/metrics
  pleg-pipeline run -r unix:///run/crio/crio.sock --listen :9090`

func newRun(p Process) *cobra.Command {
	c := runCommand{process: p}
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Print the events of a container runtime",
		Long:    runLong,
		Example: runExample,
		Args:    c.args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(cmd.Flags()); err != nil {
				return err
			}
			return fail(c.run(cmd.Context()))
		},
	}
	c.addFlags(cmd)
	return cmd
}

// args tells what went wrong in "--simulate 50", which cobra reads as a flag
// without its optional value and an argument.
func (c *runCommand) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && cmd.Flags().Changed("simulate") {
		if _, err := strconv.Atoi(args[0]); err == nil {
			return fmt.Errorf("the number of pods needs an equals sign: --simulate=%s", args[0])
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", strings.Join(args, " "))
	}
	return nil
}

// run watches the simulated runtime or the one it finds.
func (c *runCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	if c.simulation.pods > 0 {
		out.say(ctx, "the runtime is simulated: %v", &c.simulation)
		return c.simulation.around(ctx, out.log, func(ctx context.Context, address string) error {
			return c.watch(ctx, out, endpoint.Endpoint{Address: address, Source: "--simulate"})
		})
	}
	found, err := endpoint.Resolver{
		Flag:          c.endpoint,
		Config:        c.config,
		Getenv:        c.process.Getenv,
		DefaultConfig: endpoint.DefaultConfig,
		WellKnown:     endpoint.WellKnown(),
	}.Resolve(ctx)
	if errors.Is(err, endpoint.ErrNone) {
		return fmt.Errorf("%w\nname one with --runtime-endpoint, or try the program without a runtime: %s run --simulate", err, Name)
	}
	if err != nil {
		return err
	}
	return c.watch(ctx, out, found)
}
