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
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const lookupLong = `Print the pod and the container that a container id, a process or a cgroup belongs
to. CONTAINER is an id or its first digits, as crictl and kubectl (containerd://ID)
print it. The daemon answers. For --pid, it must see the host's processes, for
--cgroup the host's cgroups. It knows a container before the event of its start, and
for five minutes after its removal.

The exit code is 1 if there is no such container, or if it is not known within
--wait.`

const lookupExample = `  pleg-pipeline lookup 7d1f8c0e5a...
  pleg-pipeline lookup --pid $(pidof -s nginx) -o json | jq -r .podName
  pleg-pipeline lookup --cgroup $(stat -c %i /sys/fs/cgroup/kubepods.slice/...)`

type lookupCommand struct {
	process Process
	source  sourceFlags
	query   lookup.Query
	output  string
}

func newLookup(p Process) *cobra.Command {
	c := &lookupCommand{process: p, source: sourceFlags{needsDaemon: true}}
	return newCommand(c, &cobra.Command{
		Use: "lookup [CONTAINER]",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			c.query.Container = pleg.ContainerID(args[0])
			return noArgs(cmd, args[1:])
		},
		Short:   "Print which pod a container, a process or a cgroup belongs to",
		Long:    lookupLong,
		Example: lookupExample,
	})
}

func (c *lookupCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&c.query.PID, "pid", 0, "find the container of this `PROCESS`")
	flags.Uint64Var(&c.query.Cgroup, "cgroup", 0, "find the container of the cgroup v2 with this `ID`: the inode of its directory")
	flags.DurationVar(&c.query.Wait, "wait", 2*time.Second, "`TIME` to wait for a container that is not known yet")
	enumFlag(cmd, &c.output, "output", "o", "output format", "text", "json")
	flags.StringVar(&c.source.connect, "connect", "", "ask the daemon on this `SOCKET`")
}

func (c *lookupCommand) validate(flags *pflag.FlagSet) error {
	given := 0
	for _, is := range []bool{c.query.Container != "", flags.Changed("pid"), flags.Changed("cgroup")} {
		if is {
			given++
		}
	}
	if given != 1 {
		return errors.New("want exactly one: the id of a CONTAINER, --pid or --cgroup")
	}
	return option.CheckQuery(c.query)
}

func (c *lookupCommand) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.query.Wait+answerTimeout, errNoAnswer)
	defer cancel()
	out := logFlags{level: "error"}.console(c.process.Err)
	return c.source.use(ctx, c.process, out, func(ctx context.Context, from source) error {
		return c.print(ctx, out, from.(daemonSource))
	})
}

func (c *lookupCommand) print(ctx context.Context, out console, from daemonSource) error {
	waiting := startWait(ctx, out, from, "")
	found, err := from.client.Lookup(ctx, c.query)
	if waiting.end(); err != nil {
		err = fromDaemon(ctx, err)
		if waiting.why == "" && errors.Is(err, lookup.ErrNotYet) {
			if why, _ := whyWaiting(ctx, from); why != "" {
				err = fmt.Errorf("%w: %s", err, why)
			}
		}
		return err
	}
	now, err := from.Status(ctx)
	if err != nil {
		return err
	}
	answer := view.NewLookup(found, now)
	if c.output == "json" {
		return outputError(json.NewEncoder(view.JSONWriter(c.process.Out)).Encode(answer))
	}
	return outputError(answer.Print(c.process.Out))
}
