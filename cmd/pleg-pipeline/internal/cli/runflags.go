package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

// runCommand is the command run with its flags.
type runCommand struct {
	process Process

	runtime  runtimeFlags
	pipeline pipelineFlags
	log      logFlags

	output    printer.Format
	noHeaders bool
	quiet     bool

	socket        string
	listen        string
	webConfig     string
	keepCaps      bool
	listenAddress string // listen with its host, set by validate; empty if off
}

func (c *runCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	c.runtime.add(cmd)

	outputFlag(cmd, &c.output, "events", printer.ParseEvents)
	flags.BoolVar(&c.noHeaders, "no-headers", false, "leave out the line of column names")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "print no events, only serve them")

	flags.StringVar(&c.socket, "socket", "", "serve the gRPC service pleg.v1 on a socket at this `PATH`, for its owner and\ngroup, such as "+defaultSocket)
	flags.StringVar(&c.listen, "listen", "", "serve HTTP on this `ADDRESS`, such as :9090; without a host only this\nmachine can connect")
	flags.StringVar(&c.webConfig, "web-config", "", "`FILE` with TLS and authentication for --listen, in the form of Prometheus'\nexporter toolkit")

	flags.BoolVar(&c.keepCaps, "keep-capabilities", false, "keep the capabilities that the process has, for a port below 1024 or the\nfiles of another user")

	c.pipeline.add(cmd)
	c.log.add(cmd)
}

// validate checks what the flags' types do not, and completes the address.
func (c *runCommand) validate(flags *pflag.FlagSet) error {
	if err := c.runtime.validate(flags); err != nil {
		return err
	}
	if err := c.pipeline.validate(); err != nil {
		return err
	}
	if c.socket == "" && flags.Changed("socket") {
		return errors.New("--socket must not be empty: want the path of the socket to make")
	}
	if c.quiet && c.socket == "" && c.listen == "" {
		return errors.New("--quiet needs --socket or --listen: otherwise nobody gets the events")
	}
	return c.checkListen(flags)
}

func (c *runCommand) checkListen(flags *pflag.FlagSet) error {
	if !flags.Changed("listen") {
		if flags.Changed("web-config") {
			return errors.New("--web-config needs --listen")
		}
		return nil
	}
	var err error
	if c.listenAddress, err = httpserver.ParseAddress(c.listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}
