package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

const createLong = `Create the stream of a cluster and the bucket of the agents on a NATS server. An agent
("pleg-pipeline run --nats") creates both by itself, unless it lacks the permission. This
command can also set other limits than an agent does.`

const forgetLong = `Remove the states and events of nodes that are gone from a NATS server, so that watches
learn that these nodes are gone. The server also removes this data by itself, once it is as
old as the limit of the stream. A node whose agent still publishes is an error. Use
--silent-for in place of names, such as in a job that runs each hour.`

func newFleet(p Process) *cobra.Command {
	forget := &forgetCommand{manageCommand: manageCommand{process: p}}
	cmd := &cobra.Command{Use: "fleet", Short: "Create or clean up the data on a NATS server"}
	cmd.AddCommand(
		newCommand(&createCommand{manageCommand: manageCommand{process: p}}, &cobra.Command{
			Use: "create", Short: "Create the stream of a cluster", Long: createLong,
			Example: "  pleg-pipeline fleet create --fleet nats://nats.example:4222 --cluster prod --replicas 3",
		}),
		newCommand(forget, &cobra.Command{
			Use: "forget [NODE...]", Short: "Remove the states of nodes that are gone", Long: forgetLong, Args: forget.setNodes,
			Example: "  pleg-pipeline fleet forget --fleet nats://nats.example:4222 --cluster prod node-17\n" +
				"  pleg-pipeline fleet forget --fleet nats://nats.example:4222 --cluster prod --silent-for 1h",
		}),
	)
	return cmd
}

type manageCommand struct {
	process Process
	nats    natsFlags
	log     logFlags
}

func (c *manageCommand) addFlags(cmd *cobra.Command) {
	c.nats.add(cmd, "fleet", "the `URL` of the NATS server")
	cmd.Flags().StringVar(&c.nats.cluster, "cluster", "", "the `NAME` of the cluster")
	c.log.add(cmd, "info", "debug", "warn", "error")
}

func (c *manageCommand) validate(flags *pflag.FlagSet) error {
	if !c.nats.given() {
		return errors.New("--fleet is missing: the URL of the NATS server")
	}
	return c.nats.validate(flags)
}

type createCommand struct {
	manageCommand

	limits fleet.Limits
}

func (c *createCommand) addFlags(cmd *cobra.Command) {
	c.manageCommand.addFlags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&c.limits.Replicas, "replicas", 1, "the `NUMBER` of servers that keep everything: 1, 3 or 5")
	flags.DurationVar(&c.limits.MaxAge, "max-age", fleet.DefaultMaxAge, "`TIME` for which the stream keeps an event")
	flags.Var((*sizeFlag)(&c.limits.MaxBytes), "max-bytes", "the `SIZE` of the stream, such as 50G, beyond which it refuses events, which then wait\non their nodes; 0 for no limit")
	flags.Var((*sizeFlag)(&c.limits.MaxAgentBytes), "max-agent-bytes", "the `SIZE` of the bucket of the agents; 0 for no limit, or for 32M with --max-bytes")
}

func (c *createCommand) validate(flags *pflag.FlagSet) error {
	if n := c.limits.Replicas; n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("--replicas %d: want 1, 3 or 5", n)
	}
	if c.limits.MaxAge <= 0 {
		return fmt.Errorf("--max-age %v: want a positive time", c.limits.MaxAge)
	}
	return c.manageCommand.validate(flags)
}

func (c *createCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.nats.use(ctx, out, true, func(ctx context.Context, js jetstream.JetStream) error {
		if err := fleet.Create(ctx, js, c.nats.cluster, c.limits); err != nil {
			return err
		}
		size := "no size limit"
		if c.limits.MaxBytes > 0 {
			size = fmt.Sprintf("at most %d bytes", c.limits.MaxBytes)
		}
		_, err := fmt.Fprintf(c.process.Out, "the stream %s exists: replicas %d, events of %v, %s\nthe bucket %s of the agents exists\n",
			fleet.StreamName(c.nats.cluster), c.limits.Replicas, c.limits.MaxAge, size, fleet.AgentBucket)
		return outputError(err)
	})
}

type forgetCommand struct {
	manageCommand

	nodes  []string
	silent time.Duration
}

func (c *forgetCommand) addFlags(cmd *cobra.Command) {
	c.manageCommand.addFlags(cmd)
	cmd.Flags().DurationVar(&c.silent, "silent-for", 0, "all nodes whose agents have not been seen for this `TIME`, such as 1h")
}

func (c *forgetCommand) setNodes(_ *cobra.Command, args []string) error {
	c.nodes = args
	return nil
}

func (c *forgetCommand) validate(flags *pflag.FlagSet) error {
	if (len(c.nodes) > 0) == flags.Changed("silent-for") {
		return errors.New("want the names of the nodes, or --silent-for")
	}
	if len(c.nodes) == 0 && c.silent <= 0 {
		return fmt.Errorf("--silent-for %v: want a positive time", c.silent)
	}
	return c.manageCommand.validate(flags)
}

func (c *forgetCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.nats.use(ctx, out, true, func(ctx context.Context, js jetstream.JetStream) error {
		states, err := fleet.OpenStates(ctx, js, c.nats.cluster, "")
		if err != nil {
			return err
		}
		if c.silent > 0 {
			if c.nodes, err = silentFor(ctx, states, c.silent); err != nil {
				return err
			}
		}
		for _, node := range c.nodes {
			if err := states.Forget(ctx, node); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(c.process.Out, "%s is forgotten\n", node); err != nil {
				return outputError(err)
			}
		}
		return nil
	})
}

// silentFor returns the nodes whose agents have not been seen for a time.
func silentFor(ctx context.Context, states *fleet.States, most time.Duration) (silent []string, err error) {
	nodes, err := states.Nodes(ctx)
	for _, n := range nodes {
		if n.Agent == "" && time.Since(n.LastSeen) > most {
			silent = append(silent, n.Name)
		}
	}
	return silent, err
}
