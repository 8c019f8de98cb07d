package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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

// topCommand is the command top with its flags.
type topCommand struct {
	process  Process
	source   sourceFlags
	fleet    fleetFlags
	interval time.Duration
	filter   string
	log      logFlags
}

func newTop(p Process) *cobra.Command {
	return newCommand(&topCommand{process: p}, &cobra.Command{
		Use:     "top",
		Short:   "Show pods and events on the whole screen",
		Long:    topLong,
		Example: topExample,
	})
}

func (c *topCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.interval, "interval", time.Second, "`TIME` between two updates of the figures and the pods; events are shown at\nonce")
	cmd.Flags().StringVar(&c.filter, "filter", "", "show only pods and events that have each of these `WORDS`")
	c.source.add(cmd)
	c.fleet.add(cmd)
	c.log.addQuiet(cmd)
}

// minInterval bounds what the view costs the daemon.
const minInterval = 100 * time.Millisecond

func (c *topCommand) validate(flags *pflag.FlagSet) error {
	if c.interval < minInterval {
		return fmt.Errorf("--interval must be at least %v, got %v", minInterval, c.interval)
	}
	return cmp.Or(c.source.validate(flags), c.fleet.validate(flags, &c.source))
}

func (c *topCommand) run(ctx context.Context) error {
	terminal := c.process.Terminal
	if terminal == nil {
		if terminalWidth(c.process.Out) == 0 {
			return errors.New("top needs a terminal; to print the pods, use: " + Name + " pods --watch")
		}
		terminal = c.newScreen
	}
	// What is written to stderr would destroy the screen: it is held back meanwhile.
	stderr := &heldWriter{w: c.process.Err}
	defer stderr.release()
	out := c.log.console(stderr)
	show := func(ctx context.Context, from top.Source) error {
		screen, err := terminal()
		if err != nil {
			return fmt.Errorf("use the terminal: %w", err)
		}
		stderr.hold()
		if err := screen.Init(); err != nil {
			return fmt.Errorf("use the terminal: %w", err)
		}
		defer screen.Fini()
		return top.Run(ctx, screen, from, top.Options{Interval: c.interval, Filter: c.filter})
	}
	if c.fleet.given() {
		return c.fleet.use(ctx, out, func(ctx context.Context, js jetstream.JetStream, states *fleet.States) error {
			return show(ctx, fleetSource{js: js, states: states, flags: &c.fleet})
		})
	}
	return c.source.use(ctx, c.process, out, func(ctx context.Context, from source) error { return show(ctx, topSource{from}) })
}

// newScreen uses the terminal of this process.
func (c *topCommand) newScreen() (tcell.Screen, error) {
	options := []tcell.TerminfoScreenOption{tcell.OptSanitizeContent(true)}
	if c.process.Getenv("NO_COLOR") != "" {
		options = append(options, tcell.OptColors(0))
	}
	return tcell.NewTerminfoScreen(options...)
}

// topSource is a source as the view uses it.
type topSource struct{ source }

// Events implements [top.Source].
func (s topSource) Events(ctx context.Context, disconnected func(error)) iter.Seq2[top.Event, error] {
	o := client.WatchOptions{Name: Name + "-top", Replay: true, Disconnected: func(err error, _ time.Duration) {
		disconnected(shortError(err))
	}}
	return func(yield func(top.Event, error) bool) {
		for ev, err := range s.events(ctx, o) {
			if !yield(top.Event{Event: ev}, err) {
				return
			}
		}
	}
}

// Status implements [top.Source].
func (s topSource) Status(ctx context.Context) (pleg.Status, error) {
	now, err := s.status(ctx)
	return now, shortError(err)
}

// Pods implements [top.Source].
func (s topSource) Pods(ctx context.Context) ([]view.Pod, error) {
	pods, err := s.pods(ctx)
	return pods, shortError(err)
}

// shortError returns the message of a gRPC error without its code.
func shortError(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return errors.New(s.Message())
	}
	return err
}

// maxHeld is the greatest number of bytes that a heldWriter holds back.
const maxHeld = 64 << 10

// heldWriter holds back what is written after hold until release.
type heldWriter struct {
	mu   sync.Mutex
	w    io.Writer
	held *bytes.Buffer // nil if nothing is held back
}

// Write implements [io.Writer].
func (h *heldWriter) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held == nil:
		return h.w.Write(p)
	case h.held.Len()+len(p) <= maxHeld:
		h.held.Write(p)
	}
	return len(p), nil
}

func (h *heldWriter) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = new(bytes.Buffer)
}

func (h *heldWriter) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held != nil {
		_, _ = h.w.Write(h.held.Bytes())
		h.held = nil
	}
}
