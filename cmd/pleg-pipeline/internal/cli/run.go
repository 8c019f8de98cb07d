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
serve them to other programs.

Events go to stdout, everything else to stderr. The first relist prints an event
for every container and sandbox that exists. A pod sandbox, which holds the
network and the other namespaces of a pod, counts as a container of the pod.

` + howFound + howReplayed + `

--socket serves the events and the status of every pod over gRPC (pleg.v1) to
other programs on this node, such as "pleg-pipeline events" and "pleg-pipeline
pods". --listen serves over HTTP:
  /metrics     metrics for Prometheus
  /livez       200 while this process works, whatever the runtime does
  /readyz      200 while the list of pods is fresh and the inspections keep up
  /pods        the status of every pod; /pods/UID is the status of one
  /events      the events as server-sent events
/livez and /readyz accept ?verbose. /pods and /events are available only to this
machine, unless --web-config requires clients to authenticate.

The first Ctrl-C ends the program in order, the second one at once.`

const runExample = `  # try it without a runtime
  pleg-pipeline run --simulate

  # the runtime of this node, one JSON object per line
  pleg-pipeline run -o json | jq 'select(.reason == "OOMKilled")'

  # a daemon for other programs on this node
  pleg-pipeline run --quiet --socket /run/pleg-pipeline/pleg.sock --listen :9090
  pleg-pipeline events --replay
  curl -N http://127.0.0.1:9090/events`

func newRun(p Process) *cobra.Command {
	return newCommand(&runCommand{process: p}, &cobra.Command{
		Use:     "run",
		Short:   "Print the events of a container runtime, and serve them",
		Long:    runLong,
		Example: runExample,
	})
}

// run drops privileges first and then watches the runtime.
func (c *runCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	if c.process.Drop != nil && !c.keepCaps {
		if err := c.process.Drop(); err != nil {
			out.log.WarnContext(ctx, "cannot drop capabilities", "err", err)
		}
	}
	return c.explainPermission(c.runtime.use(ctx, c.process, out, func(ctx context.Context, from endpoint.Endpoint) error {
		return c.watch(ctx, out, from)
	}))
}

// explainPermission explains a permission error seen by root.
func (c *runCommand) explainPermission(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0 && !c.keepCaps {
		return fmt.Errorf("%w (the program drops its capabilities: see --keep-capabilities)", err)
	}
	return err
}
