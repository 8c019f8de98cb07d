package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// source is where events and pods come from: a daemon, or a pipeline in this
// process.
type source interface {
	// events ranges over what the options ask for, until ctx ends or an error
	// ends the range.
	events(ctx context.Context, o client.WatchOptions) iter.Seq2[pleg.Event, error]
	// pods returns the views of all pods. pod returns that of one pod; false if it is
	// gone or unknown.
	pods(ctx context.Context) ([]view.Pod, error)
	pod(ctx context.Context, uid pleg.PodUID) (view.Pod, bool, error)
	// status returns what the pipeline does at present.
	status(ctx context.Context) (pleg.Status, error)
}

// sourceFlags say where events and pods come from.
type sourceFlags struct {
	runtime runtimeFlags
	connect string
	own     bool // set by validate
	// needsDaemon means that a pipeline in this process cannot do the work.
	needsDaemon bool
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.connect, "connect", "", "ask the daemon on this `SOCKET`")
	f.runtime.add(cmd)
}

func (f *sourceFlags) validate(flags *pflag.FlagSet) error {
	given := f.runtime.given(flags)
	f.own = given != ""
	switch {
	case flags.Changed("connect") && f.connect == "":
		return errors.New("--connect must not be empty: want the path of a socket")
	case f.own && f.connect != "":
		return fmt.Errorf("--connect cannot be combined with %s: a daemon has its own runtime", given)
	}
	return f.runtime.validate(flags)
}

// viewCommand is what the commands events and pods have in common.
type viewCommand struct {
	process Process
	source  sourceFlags
	fleet   fleetFlags
	filter  podFilter
	output  outputFlags
	log     logFlags
}

func (c *viewCommand) validate(flags *pflag.FlagSet) error {
	if err := c.source.validate(flags); err != nil {
		return err
	}
	if err := c.fleet.validate(flags, &c.source); err != nil {
		return err
	}
	return c.filter.validate()
}

// use calls with for the daemon, or for a pipeline in this process.
func (f *sourceFlags) use(ctx context.Context, p Process, out console, with func(context.Context, source) error) error {
	socket, err := f.findDaemon(ctx, p, out)
	if err != nil {
		return err
	}
	if socket != "" {
		c, err := newClient(p, socket)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return with(ctx, daemonSource{c})
	}
	if f.needsDaemon {
		return errNeedsDaemon
	}
	return f.runtime.use(ctx, p, out, func(ctx context.Context, from endpoint.Endpoint) error {
		return useOwn(ctx, out, from, with)
	})
}
