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
	output   outputFlags
	quiet    bool

	socket        string
	listen        string
	webConfig     string
	keepCaps      bool
	listenAddress string // listen completed by validate; empty without --listen
}

func (c *runCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	c.runtime.add(cmd)

	c.output.add(cmd, "events", printer.ParseEvents)
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "serve the events but do not print them")

	flags.StringVar(&c.socket, "socket", "", "serve the gRPC service pleg.v1 on a unix socket at this `PATH`, for its owner\nand group, such as "+defaultSocket)
	flags.StringVar(&c.listen, "listen", "", "serve HTTP on this `ADDRESS`, such as :9090; without a host only this\nmachine can connect")
	flags.StringVar(&c.webConfig, "web-config", "", "`FILE` with TLS and authentication for --listen, in the format of the\nPrometheus exporter toolkit")

	flags.BoolVar(&c.keepCaps, "keep-capabilities", false, "do not drop the capabilities of the process; needed for a port below 1024\nor for files of another user")

	c.pipeline.add(cmd)
	c.log.add(cmd)
}

// validate also completes the address to listen on.
func (c *runCommand) validate(flags *pflag.FlagSet) error {
	if err := c.runtime.validate(flags); err != nil {
		return err
	}
	if err := c.pipeline.validate(); err != nil {
		return err
	}
	if c.socket == "" && flags.Changed("socket") {
		return errors.New("--socket must not be empty: want the path of the socket to create")
	}
	if c.quiet && c.socket == "" && c.listen == "" {
		return errors.New("--quiet needs --socket or --listen: otherwise nobody gets the events")
	}
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
