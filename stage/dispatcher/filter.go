package dispatcher

import (
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podselector"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// types are the events that a subscriber may ask for.
var types = pleg.EventTypes(pleg.ClassNormal, pleg.ClassOnRequest)

// onRequest are those that it otherwise does not get.
var onRequest = pleg.EventTypes(pleg.ClassOnRequest)

// filter says which events a subscriber wants. It is applied before the buffer, so
// that unwanted events fill no buffer.
type filter struct {
	all           bool // except network events
	types         map[pleg.EventType]struct{}
	namespaces    map[string]struct{}
	podUIDs       map[pleg.PodUID]struct{}
	selector      *selector
	omitSandboxes bool
	networkEvents bool
}

func newFilter(o SubscribeOptions) (filter, error) {
	for _, t := range o.Types {
		if !slices.Contains(types, t) {
			return filter{}, fmt.Errorf("Types has the unknown event type %q: known are %v", t, types)
		}
	}
	f := filter{
		types: set(o.Types), namespaces: set(o.Namespaces), podUIDs: set(o.PodUIDs),
		omitSandboxes: o.OmitSandboxes, networkEvents: o.NetworkEvents,
	}
	parsed, err := podselector.Parse(o.Selector)
	if err != nil {
		return filter{}, fmt.Errorf("Selector: %w", err)
	}
	if parsed != nil {
		f.selector = &selector{text: parsed.String(), parsed: parsed}
	}
	f.all = f.types == nil && f.namespaces == nil && f.podUIDs == nil && f.selector == nil && !f.omitSandboxes
	return f, nil
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

// wantsBesides reports whether the subscriber wants an event, whatever the labels of
// its pod.
func (f *filter) wantsBesides(ev *pleg.Event) bool {
	if !f.networkEvents && slices.Contains(onRequest, ev.Type) {
		return false
	}
	if f.all {
		return true
	}
	return has(f.types, ev.Type) && has(f.namespaces, ev.PodNamespace) && has(f.podUIDs, ev.PodUID) &&
		(!f.omitSandboxes || !ev.Sandbox)
}

// matches reports whether the subscriber wants pods with these labels.
func (f *filter) matches(podLabels map[string]string) bool {
	return f.selector == nil || f.selector.matches(podLabels)
}

// mayWant reports whether the subscriber may want events of a pod, of which some things
// may not be known.
func (f *filter) mayWant(pod *pleg.Pod, podLabels map[string]string, known bool) bool {
	return (pod.Namespace == "" || has(f.namespaces, pod.Namespace)) && has(f.podUIDs, pod.UID) &&
		(!known || f.matches(podLabels))
}

func has[T comparable](s map[T]struct{}, v T) bool {
	if s == nil {
		return true
	}
	_, ok := s[v]
	return ok
}
