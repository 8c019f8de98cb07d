package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const lookupLong = `Print the pod and the container that a container id, a process or a cgroup belongs
to. The daemon answers, which must see the host's processes for --pid. It knows a
container before the event of its start, and for five minutes after its removal.

The exit code is 1 if there is no such container, or if it is not known within
--wait.`

const lookupExample = `  pleg-pipeline lookup 7d1f8c0e5a...
  pleg-pipeline lookup --pid $(pidof nginx) -o json | jq -r .podName
  pleg-pipeline lookup --cgroup $(stat -c %i /sys/fs/cgroup/kubepods.slice/...)`

// lookupCommand is the command lookup with its flags.
type lookupCommand struct {
	process Process
	source  sourceFlags
	query   lookup.Query
	output  string
}

func newLookup(p Process) *cobra.Command {
	c := &lookupCommand{process: p}
	return newCommand(c, &cobra.Command{
		Use:  "lookup [CONTAINER]",
		Args: cobra.MaximumNArgs(1),
		PreRun: func(_ *cobra.Command, args []string) {
			if len(args) > 0 {
				c.query.Container = pleg.ContainerID(args[0])
			}
		},
		Short:   "Print which pod a container, a process or a cgroup belongs to",
		Long:    lookupLong,
		Example: lookupExample,
	})
}

func (c *lookupCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&c.query.PID, "pid", 0, "of this `PROCESS`")
	flags.Uint64Var(&c.query.Cgroup, "cgroup", 0, "of the cgroup v2 with this `ID`: the inode of its directory")
	flags.DurationVar(&c.query.Wait, "wait", 2*time.Second, "how long to wait for a container that is not known yet")
	flags.BoolVar(&c.query.WithPath, "path", false, "also search the cgroup of a container that is given by its id")
	enumFlag(cmd, &c.output, "output", "o", "output format", "text", "json")
	flags.StringVar(&c.source.connect, "connect", "", "ask the daemon on this `SOCKET`")
}

func (c *lookupCommand) validate(*pflag.FlagSet) error {
	if err := c.query.Check(); err != nil {
		return fmt.Errorf("give a container id, --pid or --cgroup: %w", err)
	}
	return nil
}

func (c *lookupCommand) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.query.Wait+answerTimeout, errNoAnswer)
	defer cancel()
	socket, err := c.source.findDaemon(ctx, c.process, logFlags{level: "error"}.console(c.process.Err))
	if err != nil {
		return err
	}
	if socket == "" {
		return errors.New("there is no daemon at " + defaultSocket + ": start one with --socket, or name its socket with --connect")
	}
	daemon, err := newClient(c.process, socket)
	if err != nil {
		return err
	}
	defer func() { _ = daemon.Close() }()
	found, err := daemon.Lookup(ctx, c.query)
	if err != nil {
		return fromDaemon(ctx, err)
	}
	answer := view.NewLookup(found)
	if c.output == "json" {
		return outputError(json.NewEncoder(view.JSONWriter(c.process.Out)).Encode(answer))
	}
	return outputError(answer.Print(c.process.Out))
}
