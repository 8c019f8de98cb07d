package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

// command is a command with its flags.
type command interface {
	addFlags(cmd *cobra.Command)
	// validate checks what the types of the flags do not. Its errors are usage
	// errors.
	validate(flags *pflag.FlagSet) error
	run(ctx context.Context) error
}

// newCommand completes cmd, which has only texts, with the work of c.
func newCommand(c command, cmd *cobra.Command) *cobra.Command {
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.validate(cmd.Flags()); err != nil {
			return err
		}
		return fail(c.run(cmd.Context()))
	}
	cmd.Flags().SortFlags = false
	c.addFlags(cmd)
	return cmd
}

// outputFlags say how a command prints.
type outputFlags struct {
	format    printer.Format
	noHeaders bool
}

// add adds the flags of a command that prints what, in the formats that parse
// knows.
func (f *outputFlags) add(cmd *cobra.Command, what string, parse func(string) (printer.Format, error)) {
	value := &outputValue{format: &f.format, parse: parse, text: string(printer.Text)}
	cmd.Flags().VarP(value, "output", "o", "`FORMAT` of the "+what+": text, wide (more columns), json (one object per line)\nor go-template=TEMPLATE, which uses the field names of JSON")
	var words []string
	for _, kind := range printer.Kinds() {
		word := string(kind)
		if kind == printer.Template {
			word += "="
		}
		words = append(words, word)
	}
	completeFlag(cmd, "output", words, cobra.ShellCompDirectiveNoSpace)
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print the line of column names")
}

func (f *outputFlags) options(p Process) printer.Options {
	return printer.Options{Format: f.format, Headers: !f.noHeaders, Color: colorWanted(p.Out, p.Getenv)}
}

// outputValue is the value of --output.
type outputValue struct {
	format *printer.Format
	parse  func(string) (printer.Format, error)
	text   string
}

func (v *outputValue) String() string { return v.text }

func (*outputValue) Type() string { return "format" }

func (v *outputValue) Set(s string) (err error) {
	if *v.format, err = v.parse(s); err != nil {
		return err
	}
	v.text = s
	return nil
}
