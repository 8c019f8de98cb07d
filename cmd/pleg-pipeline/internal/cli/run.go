package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

const runLong = `Print the pod lifecycle events of a CRI runtime until SIGINT or SIGTERM, and
serve them to other programs.

Events go to stdout, everything else to stderr. The first relist prints an event
for every container and sandbox that exists. A pod sandbox, which holds the
network and the other namespaces of a pod, counts as a container of the pod.

` + howFound + howReplayed + `

--socket serves the events and the status of every pod over gRPC (pleg.v1) to
other programs on this node, such as "pleg-pipeline events". --listen serves over
HTTP a page for a browser at /, /metrics for Prometheus, the health as /livez and
/readyz (with ?verbose, why), /stages, /hour, /pods and /events. Answers that name
pods are available only to this machine, unless --web-config requires clients to
authenticate.

Each flag may also be set by an environment variable, such as
PLEG_PIPELINE_RELIST_PERIOD for --relist-period (for --socket,
PLEG_PIPELINE_RUN_SOCKET), or by a line of --config-file. OpenTelemetry's variables
count, too. More flags only tune: --print-config prints all, and docs/operations.md
explains them.`

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

type runCommand struct {
	process Process

	runtime  runtimeFlags
	pipeline pipelineFlags
	log      logFlags
	settings settings
	flags    *pflag.FlagSet
	output   outputFlags
	quiet    bool

	socket    string
	listen    string
	health    string // address of the server for probes
	webConfig string
	server    server.Options
	streams   int    // clients of /events
	incidents string // folder; empty for none
	publish   publishFlags
}

func (c *runCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	c.flags = flags
	c.runtime.add(cmd)
	c.runtime.addSimulation(cmd)
	flags.BoolVar(&c.runtime.wait, "wait-for-runtime", false, "if there is no runtime, or it does not answer, wait for it instead of exiting")
	group(cmd, "Runtime")

	c.pipeline.add(cmd)
	group(cmd, "Pipeline")

	c.output.add(cmd, "events")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "serve the events but do not print them")
	group(cmd, "Output")

	flags.StringVar(&c.socket, "socket", "", "serve the gRPC service pleg.v1 on a unix socket at this `PATH`, for its owner\nand group, such as "+defaultSocket)
	flags.StringVar(&c.listen, "listen", "", "serve HTTP on this `ADDRESS`, such as :9090; without a host only this\nmachine can connect")
	flags.StringVar(&c.webConfig, "web-config", "", "`FILE` with TLS and authentication for --listen, in the format of the\nPrometheus exporter toolkit")
	flags.StringVar(&c.health, "health-listen", "", "serve only /livez and /readyz on this `ADDRESS`, without TLS and passwords,\nfor probes")
	if forTests != "" {
		flags.IntVar(&c.server.MaxConnections, "max-connections", server.DefaultMaxConnections, "")
		flags.IntVar(&c.server.MaxWatchers, "max-watchers", server.DefaultMaxWatchers, "")
		flags.IntVar(&c.streams, "max-event-streams", httpserver.DefaultMaxStreams, "")
		tuning(cmd, "max-connections", "max-watchers", "max-event-streams")
	}
	group(cmd, "Service on this node")

	c.publish.add(cmd)
	group(cmd, "Other machines")

	flags.StringVar(&c.incidents, "incident-dir", "", "keep the runtime's answers of the last minutes in memory, and write them to a\nfile in this `FOLDER`, redacted, when the verdict becomes a problem")
	c.log.add(cmd, "info", "debug", "warn", "error")
	c.settings.add(cmd)
	cmd.InitDefaultHelpFlag()
	group(cmd, "Process")
}

// validate applies the settings first.
func (c *runCommand) validate(flags *pflag.FlagSet) error {
	if err := c.settings.apply(flags, c.process.Getenv); err != nil {
		return err
	}
	err := cmp.Or(
		c.runtime.validate(flags), c.pipeline.validate(),
		notEmpty(flags, "socket"), isAddress(flags, "listen"), isAddress(flags, "health-listen"), c.publish.validate(flags, &c.settings),
	)
	if err != nil {
		return err
	}
	if c.quiet && c.socket == "" && c.listen == "" && !c.publish.given() {
		return errors.New("--quiet needs --socket, --listen, --nats or --otlp: otherwise nobody gets the events")
	}
	if !flags.Changed("listen") {
		return needs(flags, "--listen", "web-config")
	}
	return nil
}

// isAddress returns an error if a flag is set to something that is not an address to listen on.
func isAddress(flags *pflag.FlagSet, name string) error {
	if !flags.Changed(name) {
		return nil
	}
	if err := httpserver.CheckAddress(flags.Lookup(name).Value.String()); err != nil {
		return fmt.Errorf("--%s: %w", name, err)
	}
	return nil
}

func (c *runCommand) run(ctx context.Context) error {
	if c.settings.print {
		return outputError(c.settings.write(c.process.Out, c.flags))
	}
	stderr := newAsyncWriter(c.process.Err, func(w io.Writer, dropped int64) {
		c.log.console(w).say(ctx, "nobody read stderr: %d lines were dropped", dropped)
	})
	defer stderr.close()
	out := c.log.console(stderr)
	return c.runtime.use(ctx, c.process, out, func(ctx context.Context, from endpoint.Endpoint) error {
		return c.serve(ctx, out, from)
	})
}

// newIncidents returns nil without --incident-dir.
func (c *runCommand) newIncidents() (*recording.Incidents, error) {
	if c.incidents == "" {
		return nil, nil
	}
	incidents, err := recording.NewIncidents(c.incidents, programVersion())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.settings.name("incident-dir"), err)
	}
	return incidents, nil
}
