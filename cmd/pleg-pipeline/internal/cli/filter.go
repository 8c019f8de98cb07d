package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

// podFilter says which pods are wanted.
type podFilter struct {
	namespaces []string
	selector   string
}

func (f *podFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only pods of this `NAMESPACE`; may be repeated")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "only pods whose labels match this Kubernetes label `SELECTOR`, such as\napp=web,tier!=test")
}

func (f *podFilter) validate() error {
	if strings.TrimSpace(f.selector) == "" {
		return nil
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("--selector %q is not a label selector: %w", f.selector, err)
	}
	return nil
}

// eventTypes are those that --type takes.
func eventTypes() []string {
	return []string{
		string(pipeline.ContainerStarted), string(pipeline.ContainerDied), string(pipeline.ContainerRemoved), string(pipeline.PodSync),
		string(pipeline.NetworkSetupCompleted), string(pipeline.NetworkFailed),
	}
}

// typeFlag adds --type, which takes several.
func typeFlag(cmd *cobra.Command, types *[]string) {
	cmd.Flags().StringSliceVar(types, "type", nil, "only events of this `TYPE`; may be repeated: "+strings.Join(eventTypes()[:4], ", ")+",\n"+strings.Join(eventTypes()[4:], ", "))
	complete := cobra.FixedCompletions(eventTypes(), cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("type", complete); err != nil {
		panic("cli: " + err.Error()) // a flag that was just added
	}
}

// parseTypes returns event types, and whether those of the network are among
// them.
func parseTypes(words []string) (types []pipeline.EventType, network bool, err error) {
	for _, word := range words {
		if !slices.Contains(eventTypes(), word) {
			return nil, false, fmt.Errorf("--type %q is unknown: want %s", word, strings.Join(eventTypes(), ", "))
		}
		t := pipeline.EventType(word)
		types = append(types, t)
		network = network || t == pipeline.NetworkSetupCompleted || t == pipeline.NetworkFailed
	}
	return types, network, nil
}
