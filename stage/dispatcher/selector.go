package dispatcher

import (
	"reflect"

	"k8s.io/apimachinery/pkg/labels"
)

// selector is a label selector. Subscribers with the same one share it, and the
// dispatcher owns it. It remembers the last labels, because the events of a pod that
// follow each other have the same map: one match serves them all, and all subscribers.
type selector struct {
	labels.Selector

	text        string
	subscribers int

	last    labels.Labels
	matched bool
}

func (s *selector) Matches(podLabels labels.Labels) bool {
	// The labels of a pod are not changed, so that the same map has the same labels.
	if s.last == nil || reflect.ValueOf(podLabels).Pointer() != reflect.ValueOf(s.last).Pointer() {
		s.last, s.matched = podLabels, s.Selector.Matches(podLabels)
	}
	return s.matched
}

// selectors are those of the present subscribers, by their text.
type selectors map[string]*selector

// share returns the selector that equals s, for one more subscriber. It accepts nil.
func (all selectors) share(s labels.Selector) labels.Selector {
	if s == nil {
		return nil
	}
	text := s.String()
	shared := all[text]
	if shared == nil {
		shared = &selector{Selector: s, text: text}
		all[text] = shared
	}
	shared.subscribers++
	return shared
}

// release undoes share.
func (all selectors) release(s labels.Selector) {
	shared, ok := s.(*selector)
	if !ok {
		return
	}
	if shared.subscribers--; shared.subscribers == 0 {
		delete(all, shared.text)
	}
}
