package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
)

const runLong = `Print the pod lifecycle events of a CRI runtime until SIGINT or SIGTERM, and
serve them to others.

Events go to stdout, everything else to stderr. The first list of the runtime
gives an event for every container and sandbox there is. A sandbox, which holds
a pod's network and other namespaces, counts as a container of its pod.

` + howFound + howReplayed + `

--socket serves the events and the status of every pod to other programs of this
node, over gRPC: to "pleg-pipeline events", "pleg-pipeline pods" and to
everything that speaks pleg.v1. --listen serves over HTTP:
  /metrics     metrics for Prometheus
  /livez       200 while the process works, whatever the runtime does
  /readyz      200 while the list of pods is fresh and the inspections keep up
  /pods        what is known of every pod, and of one as /pods/UID
  /events      the events as server-sent events
/livez and /readyz know ?verbose. What shows pods is served to this machine only,
unless --web-config asks the clients who they are.

A first Ctrl-C ends the program in order, a second one at once.`

const runExample = `  # see it work without a runtime
  pleg-pipeline run --simulate

  # the runtime of this node, one JSON object a line
  pleg-pipeline run -o json | jq 'select(.reason == "OOMKilled")'

  # a daemon for other programs on this node
  pleg-pipeline run --quiet --socket /run/pleg-pipeline/pleg.sock --listen :9090
  pleg-pipeline events --replay
  curl -N http://127.0.0.1:9090/events`

func newRun(p Process) *cobra.Command {
	c := runCommand{process: p}
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Print the events of a container runtime, and serve them",
		Long:    runLong,
		Example: runExample,
		Args:    noArgs,
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

// run watches the simulated runtime or the one it finds, with no more rights
// than that takes.
func (c *runCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	if c.process.Drop != nil && !c.keepCaps {
		if err := c.process.Drop(); err != nil {
			out.log.WarnContext(ctx, "capabilities are kept", "err", err)
		}
	}
	return c.hint(c.use(ctx, out))
}

// hint tells root, to whom little is forbidden, how come.
func (c *runCommand) hint(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0 && !c.keepCaps {
		return fmt.Errorf("%w (capabilities are given up: see --keep-capabilities)", err)
	}
	return err
}

func (c *runCommand) use(ctx context.Context, out console) error {
	return c.runtime.use(ctx, c.process, out, func(ctx context.Context, from endpoint.Endpoint) error {
		return c.watch(ctx, out, from)
	})
}
