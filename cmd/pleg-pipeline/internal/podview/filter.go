package podview

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Filter says which pods are wanted. The zero value wants all.
type Filter struct {
	// Namespaces are those wanted; if empty, all.
	Namespaces []string
	selector   labels.Selector
}

// Select wants pods whose labels match a Kubernetes label selector; an empty one
// matches all. The error is that of a bad selector.
func (f *Filter) Select(selector string) (err error) {
	if strings.TrimSpace(selector) == "" {
		f.selector = nil
		return nil
	}
	f.selector, err = labels.Parse(selector)
	return err
}

// Wants reports whether the pod is wanted. A pod whose inspection failed has
// neither namespace nor labels and is wanted only by who wants all.
func (f *Filter) Wants(p *Pod) bool {
	if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, p.Namespace) {
		return false
	}
	return f.selector == nil || f.selector.Matches(labels.Set(p.Labels()))
}
