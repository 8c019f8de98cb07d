package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
)

// podFilter selects pods.
type podFilter struct {
	podview.Filter

	selector string
}

func (f *podFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "only pods of this `NAMESPACE`; may be repeated")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "only pods whose labels match this Kubernetes label `SELECTOR`, such as\napp=web,tier!=test")
}

func (f *podFilter) validate() error {
	if err := f.Select(f.selector); err != nil {
		return fmt.Errorf("--selector %q is not a label selector: %w", f.selector, err)
	}
	return nil
}

// eventTypes are the values of --type.
func eventTypes() []string {
	return []string{
		string(pipeline.ContainerStarted), string(pipeline.ContainerDied), string(pipeline.ContainerRemoved), string(pipeline.PodSync),
		string(pipeline.NetworkSetupCompleted), string(pipeline.NetworkFailed),
	}
}

func typeFlag(cmd *cobra.Command, types *[]string) {
	words := eventTypes()
	cmd.Flags().StringSliceVar(types, "type", nil, "only events of this `TYPE`; may be repeated: "+strings.Join(words[:2], ", ")+",\n"+strings.Join(words[2:], ", "))
	completeFlag(cmd, "type", words, cobra.ShellCompDirectiveDefault)
}

// parseTypes returns event types, and whether network events are among them.
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
