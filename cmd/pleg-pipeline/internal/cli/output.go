package cli

import (
	"github.com/spf13/cobra"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

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

// outputFlag adds the flag --output of a command that prints what parse is for.
func outputFlag(cmd *cobra.Command, format *printer.Format, what string, parse func(string) (printer.Format, error)) {
	value := &outputValue{format: format, parse: parse, text: string(printer.Text)}
	cmd.Flags().VarP(value, "output", "o", "`FORMAT` of the "+what+": text, wide (more columns), json (one object a line) or\ngo-template=TEMPLATE, where the fields have the names of JSON")
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, kind := range printer.Kinds() {
			word := string(kind)
			if kind == printer.Template {
				word += "="
			}
			words = append(words, word)
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	if err := cmd.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic("cli: " + err.Error()) // a flag that was just added
	}
}
