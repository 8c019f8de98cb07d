package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

// OptionsOf returns what the flags of the command run make of a pipeline and of the client of its
// runtime.
func OptionsOf(args ...string) (pipeline.Options, cri.Options, error) {
	c, cmd := &runCommand{}, &cobra.Command{}
	c.addFlags(cmd)
	err := cmd.ParseFlags(args)
	return c.pipeline.options(nil, nil, nil), c.pipeline.clientOptions(nil, nil), err
}

// NewLog returns a log of level debug, whose lines are limited.
func NewLog(w io.Writer) *slog.Logger { return logFlags{level: "debug"}.console(w).log }

// OnlyHung reports whether all pods that wait for their inspection hang.
var OnlyHung = onlyHung
