package podview

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Filter selects pods. The zero value selects all.
type Filter struct {
	// Namespaces are the selected namespaces. If empty, all.
	Namespaces []string
	selector   labels.Selector
}

// Select sets a Kubernetes label selector that the labels of a pod must match. An
// empty one matches all pods. The error says what is wrong with the selector.
func (f *Filter) Select(selector string) (err error) {
	if strings.TrimSpace(selector) == "" {
		f.selector = nil
		return nil
	}
	f.selector, err = labels.Parse(selector)
	return err
}

// Wants reports whether the filter selects the pod. A pod whose inspection failed
// has neither namespace nor labels, so only a filter for all pods selects it.
func (f *Filter) Wants(p *Pod) bool {
	if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, p.Namespace) {
		return false
	}
	return f.selector == nil || f.selector.Matches(labels.Set(p.Labels()))
}
