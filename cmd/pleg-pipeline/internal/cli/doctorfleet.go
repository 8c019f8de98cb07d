package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// validateFleet returns an error for a flag that is about this node alone.
func (c *doctorCommand) validateFleet(flags *pflag.FlagSet) error {
	if c.fleet.given() && (c.npd || c.watch > 0 || c.calls > 0) {
		return errors.New("--fleet cannot be combined with --npd, --for or --calls: the agents of the nodes have examined them")
	}
	return c.fleet.validate(flags, &c.source)
}

// examineFleet prints what the agents of a cluster say of their nodes.
func (c *doctorCommand) examineFleet(ctx context.Context, out console) error {
	return c.fleet.use(ctx, out, true, func(ctx context.Context, s source) error {
		ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errNoServer)
		defer cancel()
		nodes, err := s.(fleetSource).states.Nodes(ctx)
		if len(nodes) == 0 && err != nil {
			return err
		}
		if wanted := c.fleet.nodes; len(wanted) > 0 {
			nodes = slices.DeleteFunc(nodes, func(n fleet.Node) bool { return !slices.Contains(wanted, n.Name) })
		}
		return cmp.Or(err, c.printReport(doctor.Rank(nodes, time.Now())))
	})
}
