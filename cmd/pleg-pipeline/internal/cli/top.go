package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
)

const topLong = `Show pods and events on the whole screen, until q or Ctrl-C.

The first line says what is wrong: which pod cannot be inspected, and in which
call of the runtime it hangs. The table has these pods first, then the busiest
and the most restarted. Below it are the newest events. Press ? for the keys.

` + howConnected + howFleet

const topExample = `  pleg-pipeline top
  pleg-pipeline top --filter 'shop web'
  pleg-pipeline top --fleet nats://nats.example:4222 --cluster prod`

type topCommand struct {
	viewCommand

	options top.Options
}

func newTop(p Process) *cobra.Command {
	return newCommand(&topCommand{viewCommand{process: p, needsPods: true}, top.Options{Interval: time.Second}}, &cobra.Command{
		Use:     "top",
		Short:   "Show pods and events on the whole screen",
		Long:    topLong,
		Example: topExample,
	})
}

func (c *topCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.options.Filter, "filter", "", "show only pods and events that have each of these `WORDS`")
	c.addSources(cmd)
}

func (c *topCommand) run(ctx context.Context) error {
	if !c.process.hasScreen() {
		return errors.New("top needs a terminal; to print the pods, use: " + Name + " pods")
	}
	// Lines on stderr would destroy the screen.
	stderr := &heldWriter{w: c.process.Err}
	return c.use(ctx, c.log.console(stderr), func(ctx context.Context, from source) error {
		stderr.hold()
		defer stderr.release()
		screen, err := c.process.screen()
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			return fmt.Errorf("use the terminal: %w", err)
		}
		defer screen.Fini()
		return top.Run(ctx, screen, from, c.options)
	})
}
