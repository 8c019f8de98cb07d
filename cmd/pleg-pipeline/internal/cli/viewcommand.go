package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

type viewCommand struct {
	process Process
	source  sourceFlags
	fleet   fleetFlags
	filter  podFilter
	output  outputFlags
	log     logFlags
	// needsPods means that the events alone are not enough.
	needsPods bool
}

func (c *viewCommand) addSources(cmd *cobra.Command) {
	c.source.add(cmd)
	c.fleet.add(cmd)
	c.log.addQuiet(cmd)
}

func (c *viewCommand) validate(flags *pflag.FlagSet) error {
	if err := c.source.validate(flags); err != nil {
		return err
	}
	if err := c.fleet.validate(flags, &c.source); err != nil {
		return err
	}
	return c.filter.validate()
}

// use calls fn with the cluster or a daemon.
func (c *viewCommand) use(ctx context.Context, out console, fn func(context.Context, source) error) error {
	if c.fleet.given() {
		c.fleet.namespaces = c.filter.Namespaces
		return c.fleet.use(ctx, out, c.needsPods, fn)
	}
	return c.source.use(ctx, c.process, out, fn)
}

type podFilter struct {
	pleg.Filter

	applied filter.Filter // set by validate
	// names are UIDs, NAMEs or NAMESPACE/NAMEs. If empty, all.
	names []string
	all   bool // --all-namespaces
}

func (f *podFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "only pods of this `NAMESPACE`; may be repeated")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "pods of all namespaces, as without --namespace")
	cmd.Flags().StringVarP(&f.Selector, "selector", "l", "", "only pods whose labels match this Kubernetes label `SELECTOR`, such as\napp=web,tier!=test")
}

func (f *podFilter) validate() (err error) {
	if f.all {
		f.Namespaces = nil
	}
	if f.applied, err = filter.New(f.Filter); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	return nil
}

// nothing returns the error that no pod is selected, if the user selects some.
func (f *podFilter) nothing() error {
	switch {
	case len(f.names) > 0:
		return fmt.Errorf("no pod has the name %s", strings.Join(f.names, ", "))
	case len(f.Namespaces) == 0 && f.Selector == "":
		return nil
	case f.Selector == "":
		return fmt.Errorf("no pod is in the namespace %s", strings.Join(f.Namespaces, ", "))
	case len(f.Namespaces) == 0:
		return fmt.Errorf("no pod matches the selector %s", f.Selector)
	}
	return fmt.Errorf("no pod in the namespace %s matches the selector %s", strings.Join(f.Namespaces, ", "), f.Selector)
}

func (f *podFilter) wants(p *view.Pod) bool {
	return p.Wanted(&f.applied) && f.named(p.UID, p.Namespace, p.Name)
}

func (f *podFilter) named(uid pleg.PodUID, namespace, name string) bool {
	is := func(n string) bool {
		return n == string(uid) || name != "" && (n == name || n == namespace+"/"+name)
	}
	return len(f.names) == 0 || slices.ContainsFunc(f.names, is)
}
