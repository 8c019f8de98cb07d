package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

type command interface {
	addFlags(cmd *cobra.Command)
	// validate checks the rules that the types of the flags do not check. Its errors are usage
	// errors.
	validate(flags *pflag.FlagSet) error
	run(ctx context.Context) error
}

// newCommand completes cmd, which contains only texts, with the work of c.
func newCommand(c command, cmd *cobra.Command) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.validate(cmd.Flags()); err != nil {
			return err
		}
		return fail(c.run(cmd.Context()))
	}
	cmd.Flags().SortFlags = false
	cmd.SetUsageFunc(usage)
	c.addFlags(cmd)
	return cmd
}

// groupAnnotation of a flag is the heading above it and the flags before it.
const groupAnnotation = "group"

// group puts the flags since the last group under a heading of the help.
func group(cmd *cobra.Command, heading string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[groupAnnotation] != nil {
			return
		}
		if f.Annotations == nil {
			f.Annotations = make(map[string][]string)
		}
		f.Annotations[groupAnnotation] = []string{heading}
	})
}

// tuning hides flags that only tune. They work everywhere; docs/operations.md lists them.
func tuning(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Lookup(name).Hidden = true
	}
}

// usage prints the usage of a command without subcommands: its flags, by group.
func usage(cmd *cobra.Command) error {
	var headings []string
	groups := make(map[string]*pflag.FlagSet)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		heading := strings.Join(f.Annotations[groupAnnotation], "")
		if heading == "" {
			heading = "Flags"
		}
		if groups[heading] == nil {
			headings = append(headings, heading)
			groups[heading] = pflag.NewFlagSet(heading, pflag.ContinueOnError)
			groups[heading].SortFlags = false
		}
		groups[heading].AddFlag(f)
	})
	var text strings.Builder
	fmt.Fprintf(&text, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(&text, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, heading := range headings {
		fmt.Fprintf(&text, "\n%s:\n%s", heading, groups[heading].FlagUsages())
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), text.String())
	return err
}

// noArgs explains the error in "--simulate 50", which cobra reads as a flag without
// its optional value, and an argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := podArgs(cmd, args); err != nil {
		return err
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", strings.Join(args, " "))
	}
	return nil
}

func podArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && cmd.Flags().Changed("simulate") {
		if _, err := strconv.Atoi(args[0]); err == nil {
			return fmt.Errorf("the number of pods needs an equals sign: --simulate=%s", args[0])
		}
	}
	return nil
}

// needs returns an error if one of the flags is given without the flag that it belongs to.
func needs(flags *pflag.FlagSet, what string, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) {
			return fmt.Errorf("--%s needs %s", name, what)
		}
	}
	return nil
}

// notEmpty returns an error if one of the flags is an empty text, such as from a shell variable
// that is not set.
func notEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s must not be empty", name)
		}
	}
	return nil
}

func longerThanZero(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if d, err := flags.GetDuration(name); err != nil || d <= 0 {
			return fmt.Errorf("--%s must be longer than 0, got %v", name, d)
		}
	}
	return nil
}

// anyNumber is the upper bound of a number that needs none.
const anyNumber = math.MaxInt32

func between(flags *pflag.FlagSet, name string, least, most int) error {
	switch n, err := flags.GetInt(name); {
	case err == nil && n >= least && n <= most:
		return nil
	case most == anyNumber:
		return fmt.Errorf("--%s must be at least %d, got %d", name, least, n)
	default:
		return fmt.Errorf("--%s must be between %d and %d, got %d", name, least, most, n)
	}
}

type outputFlags struct {
	format    view.Format
	noHeaders bool
}

// add adds the flags; what names the printed objects.
func (f *outputFlags) add(cmd *cobra.Command, what string) {
	enumFlag(cmd, (*string)(&f.format), "output", "o", "format of the "+what+": text is cut to the terminal, wide is not and has\nmore columns, name is NAMESPACE/NAME, json is one object per line", view.Formats()...)
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print the line of column names")
}

func (f *outputFlags) options(p Process) view.PrintOptions {
	return view.PrintOptions{Format: f.format, Headers: !f.noHeaders, Color: p.colorWanted(), Width: terminalWidth(p.Out)}
}

type enum struct {
	value   *string
	allowed []string
}

// String implements [pflag.Value], which pflag also calls on the zero value.
func (v enum) String() string {
	if v.value == nil {
		return ""
	}
	return *v.value
}

// Type implements [pflag.Value].
func (v enum) Type() string { return strings.Join(v.allowed, "|") }

// Set implements [pflag.Value].
func (v enum) Set(s string) error {
	if !slices.Contains(v.allowed, s) {
		return errors.New("want " + strings.Join(v.allowed, ", "))
	}
	*v.value = s
	return nil
}

// enumFlag adds a flag that allows only these words. The first value is the default.
func enumFlag(cmd *cobra.Command, value *string, name, shorthand, usage string, allowed ...string) {
	*value = allowed[0]
	cmd.Flags().VarP(enum{value, allowed}, name, shorthand, usage)
	completeFlag(cmd, name, allowed)
}

func completeFlag(cmd *cobra.Command, name string, words []string) {
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic("cli: " + err.Error()) // the flag was just added
	}
}
