package wire

import (
	"errors"
	"fmt"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// FromFilter returns a request for the events that a filter wants, or an error if one of
// its types has no number.
func FromFilter(f pleg.Filter) (*plegv1.WatchRequest, error) {
	r := &plegv1.WatchRequest{
		Namespaces:    f.Namespaces,
		LabelSelector: f.Selector,
		OmitSandboxes: f.OmitSandboxes,
		NetworkEvents: f.NetworkEvents,
	}
	for _, t := range f.Types {
		number, ok := FromEventType(t)
		if !ok {
			return nil, fmt.Errorf("Types has the unknown event type %q", t)
		}
		r.Types = append(r.Types, number)
	}
	for _, uid := range f.PodUIDs {
		r.PodUids = append(r.PodUids, string(uid))
	}
	return r, nil
}

// ToFilter returns the filter of a request.
func ToFilter(r *plegv1.WatchRequest) (pleg.Filter, error) {
	f := pleg.Filter{
		Namespaces:    r.GetNamespaces(),
		Selector:      r.GetLabelSelector(),
		OmitSandboxes: r.GetOmitSandboxes(),
		NetworkEvents: r.GetNetworkEvents(),
	}
	for _, number := range r.GetTypes() {
		if number == plegv1.EventType_EVENT_TYPE_UNSPECIFIED {
			return f, errors.New("types has an unspecified type")
		}
		f.Types = append(f.Types, ToEventType(number))
	}
	for _, uid := range r.GetPodUids() {
		f.PodUIDs = append(f.PodUIDs, pleg.PodUID(uid))
	}
	return f, nil
}
