package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

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
