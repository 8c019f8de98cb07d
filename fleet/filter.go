package fleet

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// filter says which events a watch wants.
type filter struct {
	o        WatchOptions
	selector labels.Selector // nil for all
}

// newFilter returns an error that names the bad option.
func newFilter(o WatchOptions) (filter, error) {
	f := filter{o: o}
	for _, t := range o.Types {
		if !slices.Contains(pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest), t) {
			return filter{}, fmt.Errorf("WatchOptions.Types has the unknown event type %q", t)
		}
	}
	if strings.TrimSpace(o.Selector) != "" {
		var err error
		if f.selector, err = labels.Parse(o.Selector); err != nil {
			return filter{}, fmt.Errorf("WatchOptions.Selector %q is not a label selector: %w", o.Selector, err)
		}
	}
	return f, nil
}

// wants reports whether the watch wants an event of a pod with these labels.
func (f *filter) wants(ev *pleg.Event, podLabels map[string]string) bool {
	if !f.o.NetworkEvents && ev.Type.Info().Class == pleg.ClassOnRequest {
		return false
	}
	if f.o.OmitSandboxes && ev.Sandbox {
		return false
	}
	return allows(f.o.Types, ev.Type) && allows(f.o.Namespaces, ev.PodNamespace) && allows(f.o.PodUIDs, ev.PodUID) &&
		(f.selector == nil || f.selector.Matches(labels.Set(podLabels)))
}

func allows[T comparable](wanted []T, v T) bool {
	return len(wanted) == 0 || slices.Contains(wanted, v)
}
