package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
)

const topLong = `Show pods and events on the whole screen, until q or Ctrl-C.

The first line says what is wrong: which pod cannot be inspected, and in which
call of the runtime it hangs. The table has these pods first, then the busiest
and the most restarted. Below it are the newest events. Press ? for the keys.

` + howConnected + howFleet

const topExample = `  pleg-pipeline top
  pleg-pipeline top --filter 'shop web'
  pleg-pipeline top --simulate=30     # try it without a runtime
  pleg-pipeline top --fleet nats://nats.example:4222 --cluster prod`

type topCommand struct {
	viewCommand

	options top.Options
}

func newTop(p Process) *cobra.Command {
	return newCommand(&topCommand{viewCommand: viewCommand{process: p, needsPods: true}}, &cobra.Command{
		Use:     "top",
		Short:   "Show pods and events on the whole screen",
		Long:    topLong,
		Example: topExample,
	})
}

func (c *topCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.options.Interval, "interval", time.Second, "`TIME` between two updates of the figures and the pods; events are shown at\nonce")
	cmd.Flags().StringVar(&c.options.Filter, "filter", "", "show only pods and events that have each of these `WORDS`")
	c.addSources(cmd)
}

// minInterval bounds what the view costs the daemon.
const minInterval = 100 * time.Millisecond

func (c *topCommand) validate(flags *pflag.FlagSet) error {
	if c.options.Interval < minInterval {
		return fmt.Errorf("--interval must be at least %v, got %v", minInterval, c.options.Interval)
	}
	return c.viewCommand.validate(flags)
}

func (c *topCommand) run(ctx context.Context) error {
	if !c.process.hasScreen() {
		return errors.New("top needs a terminal; to print the pods, use: " + Name + " pods")
	}
	screen := newFullScreen(c.process)
	return c.use(ctx, c.log.console(&screen.stderr), func(ctx context.Context, from source) error {
		return screen.show(ctx, from, c.options)
	})
}
