package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

const createLong = `Create the stream of a cluster and the bucket of the agents on a NATS server
("pleg-pipeline run --nats"), for agents that have no permission to do it, or with other
limits than theirs.`

const forgetLong = `Remove the states and events of nodes that are gone from a NATS server. The server does it
too, once they are as old as the limit of the stream. A node whose agent still publishes is
an error.`

func newFleet(p Process) *cobra.Command {
	forget := &forgetCommand{manageCommand: manageCommand{process: p}}
	cmd := &cobra.Command{Use: "fleet", Short: "Create or clean up what is on a NATS server"}
	cmd.AddCommand(
		newCommand(&createCommand{manageCommand: manageCommand{process: p}}, &cobra.Command{
			Use: "create", Short: "Create the stream of a cluster", Long: createLong,
			Example: "  pleg-pipeline fleet create --fleet nats://nats.example:4222 --cluster prod --replicas 3",
		}),
		newCommand(forget, &cobra.Command{
			Use: "forget NODE...", Short: "Remove the states of nodes that are gone", Long: forgetLong, Args: forget.setNodes,
			Example: "  pleg-pipeline fleet forget --fleet nats://nats.example:4222 --cluster prod node-17",
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
	flags.Int64Var(&c.limits.MaxBytes, "max-bytes", 0, "the `SIZE` in bytes of the stream beyond which it refuses events, which then wait on\ntheir nodes; 0 for no limit")
}

func (c *createCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.nats.use(ctx, out, true, func(ctx context.Context, js jetstream.JetStream) error {
		if err := fleet.Create(ctx, js, c.nats.cluster, c.limits); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.process.Out, "%s and %s exist\n", fleet.StreamName(c.nats.cluster), fleet.AgentBucket)
		return outputError(err)
	})
}

type forgetCommand struct {
	manageCommand

	nodes []string
}

func (c *forgetCommand) setNodes(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("want the names of the nodes")
	}
	c.nodes = args
	return nil
}

func (c *forgetCommand) run(ctx context.Context) error {
	out := c.log.console(c.process.Err)
	return c.nats.use(ctx, out, true, func(ctx context.Context, js jetstream.JetStream) error {
		states, err := fleet.OpenStates(ctx, js, c.nats.cluster, "")
		if err != nil {
			return err
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
