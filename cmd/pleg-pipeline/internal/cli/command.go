package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	if named, ok := c.(interface{ setArgs([]string) }); ok {
		cmd.PreRun = func(_ *cobra.Command, args []string) { named.setArgs(args) }
	}
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
	format    view.Format
	text      *outputValue // as it was given
	noHeaders bool
}

// add adds the flags of a command that prints what, in the formats that parse
// knows.
func (f *outputFlags) add(cmd *cobra.Command, what string, parse func(string) (view.Format, error)) {
	value := &outputValue{format: &f.format, parse: parse, text: string(view.Text)}
	f.text = value
	cmd.Flags().VarP(value, "output", "o", "`FORMAT` of the "+what+": text (cut to the terminal), wide (all, more columns),\njson (one object per line), yaml, or go-template=TEMPLATE, which uses the field\nnames of JSON")
	var words []string
	for _, kind := range view.Kinds() {
		word := string(kind)
		if kind == view.Template {
			word += "="
		}
		words = append(words, word)
	}
	completeFlag(cmd, "output", words, cobra.ShellCompDirectiveNoSpace)
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print the line of column names")
}

func (f *outputFlags) options(p Process) view.PrintOptions {
	return view.PrintOptions{Format: f.format, Headers: !f.noHeaders, Color: colorWanted(p.Out, p.Getenv), Width: terminalWidth(p.Out)}
}

// outputValue is the value of --output.
type outputValue struct {
	format *view.Format
	parse  func(string) (view.Format, error)
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

// enum is the value of a flag that allows only certain words.
type enum struct {
	value   *string
	allowed []string
}

func (e enum) String() string {
	if e.value == nil { // pflag also calls this on the zero value
		return ""
	}
	return *e.value
}

func (e enum) Type() string { return strings.Join(e.allowed, "|") }

func (e enum) Set(s string) error {
	if !slices.Contains(e.allowed, s) {
		return errors.New("want " + strings.Join(e.allowed, ", "))
	}
	*e.value = s
	return nil
}

// enumFlag adds a flag that allows only these words. The first one is the default.
func enumFlag(cmd *cobra.Command, value *string, name, shorthand, usage string, allowed ...string) {
	*value = allowed[0]
	cmd.Flags().VarP(enum{value, allowed}, name, shorthand, usage)
	completeFlag(cmd, name, allowed, cobra.ShellCompDirectiveDefault)
}

// completeFlag lets the shell complete the words of a flag.
func completeFlag(cmd *cobra.Command, name string, words []string, directive cobra.ShellCompDirective) {
	complete := cobra.FixedCompletions(words, directive|cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic("cli: " + err.Error()) // the flag was just added
	}
}

// completeLive lets the shell complete a flag with what a function finds.
func completeLive(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic("cli: " + err.Error()) // the flag was just added
	}
}

// podFilter selects pods.
type podFilter struct {
	pleg.Filter

	applied filter.Filter // set by validate
}

func (f *podFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "only pods of this `NAMESPACE`; may be repeated")
	cmd.Flags().StringVarP(&f.Selector, "selector", "l", "", "only pods whose labels match this Kubernetes label `SELECTOR`, such as\napp=web,tier!=test")
}

func (f *podFilter) validate() error {
	var err error
	if f.applied, err = filter.New(f.Filter); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	return nil
}

// eventTypes are the values of --type.
func eventTypes() []string {
	var words []string
	for _, t := range pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest) {
		words = append(words, string(t))
	}
	return words
}

func typeFlag(cmd *cobra.Command, types *[]string) {
	cmd.Flags().StringSliceVar(types, "type", nil, "only events of this `TYPE`, such as ContainerDied; may be repeated.\nAn unknown one lists all")
	completeFlag(cmd, "type", eventTypes(), cobra.ShellCompDirectiveDefault)
}

// parseTypes returns event types, and whether one of them comes only on request.
func parseTypes(words []string) (types []pleg.EventType, onRequest bool, err error) {
	known := eventTypes()
	for _, word := range words {
		i := slices.IndexFunc(known, func(t string) bool { return strings.EqualFold(t, word) })
		if i < 0 {
			return nil, false, fmt.Errorf("--type %q is unknown: want %s", word, strings.Join(known, ", "))
		}
		t := pleg.EventType(known[i])
		types = append(types, t)
		onRequest = onRequest || t.Info().Class == pleg.ClassOnRequest
	}
	return types, onRequest, nil
}
