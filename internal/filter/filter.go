// Package filter applies a [pleg.Filter].
package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Label selectors are limited, because they are matched while others wait.
const (
	// maxRequirements is the greatest number of requirements, which commas separate.
	maxRequirements = 64
	// maxBytes is the greatest length. It also limits the values of "in".
	maxBytes = 4 << 10
)

var (
	// types are the events that a filter may name; onRequest are the types among them that
	// come only if it names them.
	types     = eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)
	onRequest = eventtype.Types(eventtype.ClassOnRequest)
)

// Filter is a [pleg.Filter], ready to match events.
type Filter struct {
	selector selector // nil for all labels

	types         map[pleg.EventType]struct{}
	namespaces    map[string]struct{}
	podUIDs       map[pleg.PodUID]struct{}
	omitSandboxes bool
	networkEvents bool
}

// New returns an error that names the mistake in the filter.
func New(f pleg.Filter) (Filter, error) {
	for _, t := range f.Types {
		if !slices.Contains(types, t) {
			return Filter{}, fmt.Errorf("Types has the unknown event type %q: known are %v", t, types)
		}
	}
	selector, err := parseSelector(f.Selector)
	return Filter{
		selector: selector,
		types:    set(f.Types), namespaces: set(f.Namespaces), podUIDs: set(f.PodUIDs),
		omitSandboxes: f.OmitSandboxes, networkEvents: f.NetworkEvents,
	}, err
}

// parseSelector returns nil if the text is empty.
func parseSelector(text string) (selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the label selector has %d bytes, the limit is %d", len(text), maxBytes)
	}
	s, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%.100q is not a label selector: %w", text, err)
	}
	if len(s) > maxRequirements {
		return nil, fmt.Errorf("the label selector has %d requirements, the limit is %d", len(s), maxRequirements)
	}
	return s, nil
}

// WantsEvent reports whether an event is wanted, whatever the labels of its pod.
func (f *Filter) WantsEvent(ev *pleg.Event) bool {
	return f.wantsType(ev.Type) && (!f.omitSandboxes || !ev.Sandbox) && f.WantsPod(ev.PodNamespace, ev.PodUID)
}

func (f *Filter) wantsType(t pleg.EventType) bool {
	switch {
	case f.types != nil:
		return has(f.types, t)
	case t == pleg.NetworkSetupCompleted || t == pleg.NetworkFailed:
		return f.networkEvents
	}
	return !slices.Contains(onRequest, t)
}

// WantsPod reports whether a pod is wanted, whatever its labels.
func (f *Filter) WantsPod(namespace string, uid pleg.PodUID) bool {
	return has(f.namespaces, namespace) && has(f.podUIDs, uid)
}

// WantsLabels reports whether pods with these labels are wanted.
func (f *Filter) WantsLabels(podLabels map[string]string) bool {
	return f.selector.matches(podLabels)
}

func set[T comparable](values []T) map[T]struct{} {
	if len(values) == 0 {
		return nil
	}
	s := make(map[T]struct{}, len(values))
	for _, v := range values {
		s[v] = struct{}{}
	}
	return s
}

func has[T comparable](s map[T]struct{}, v T) bool {
	if s == nil {
		return true
	}
	_, ok := s[v]
	return ok
}
