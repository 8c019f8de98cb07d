package view

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podselector"
)

// PodFilter selects pods. The zero value selects all.
type PodFilter struct {
	// Namespaces are the selected namespaces. If empty, all.
	Namespaces []string
	selector   labels.Selector
}

// Select sets a Kubernetes label selector that the labels of a pod must match. An
// empty one matches all pods. The error says what is wrong with the selector.
func (f *PodFilter) Select(selector string) (err error) {
	f.selector, err = podselector.Parse(selector)
	return err
}

// Wants reports whether the filter selects the pod.
func (f *PodFilter) Wants(p *Pod) bool {
	if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, p.Namespace) {
		return false
	}
	return f.selector == nil || f.selector.Matches(labels.Set(p.Labels()))
}
