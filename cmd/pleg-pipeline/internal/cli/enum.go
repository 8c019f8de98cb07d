package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// enum is the value of a flag that takes one of a few words.
type enum struct {
	value   *string
	allowed []string
}

func (e enum) String() string {
	if e.value == nil { // pflag asks the zero value too
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

// enumFlag adds a flag that takes one of the allowed words, the first if it is
// not given. The shell completes them.
func enumFlag(cmd *cobra.Command, value *string, name, shorthand, usage string, allowed ...string) {
	*value = allowed[0]
	cmd.Flags().VarP(enum{value, allowed}, name, shorthand, usage)
	complete := cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic("cli: " + err.Error()) // a flag that was just added
	}
}
