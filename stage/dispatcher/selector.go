package dispatcher

import (
	"reflect"

	"k8s.io/apimachinery/pkg/labels"
)

// selector is a label selector. Subscribers with the same one share it, and the
// dispatcher owns it. It remembers the last labels, because the events of a pod that
// follow each other have the same map: one match serves them all, and all subscribers.
type selector struct {
	text        string
	parsed      labels.Selector
	subscribers int

	last    map[string]string
	known   bool // last and matched are set
	matched bool
}

func (s *selector) matches(podLabels map[string]string) bool {
	// The labels of a pod are not changed, so that the same map has the same labels.
	if !s.known || reflect.ValueOf(podLabels).Pointer() != reflect.ValueOf(s.last).Pointer() {
		s.last, s.known = podLabels, true
		s.matched = s.parsed.Matches(labels.Set(podLabels))
	}
	return s.matched
}

// selectors are those of the present subscribers, by their text.
type selectors map[string]*selector

// share returns the selector that equals s, for one more subscriber. It accepts nil.
func (all selectors) share(s *selector) *selector {
	if s == nil {
		return nil
	}
	if other := all[s.text]; other != nil {
		s = other
	}
	all[s.text] = s
	s.subscribers++
	return s
}

// release undoes share.
func (all selectors) release(s *selector) {
	if s == nil {
		return
	}
	if s.subscribers--; s.subscribers == 0 {
		delete(all, s.text)
	}
}
