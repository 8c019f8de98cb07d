package wire

import (
	"errors"
	"fmt"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// WatchFields returns the names of the fields of a request for a subscription that this version knows.
func WatchFields() (names []string) {
	fields := (*plegv1.WatchRequest)(nil).ProtoReflect().Descriptor().Fields()
	for n := range fields.Len() {
		names = append(names, string(fields.Get(n).Name()))
	}
	return names
}

// FromOptions returns the request for a subscription, or an error that names the bad option.
func FromOptions(o pleg.SubscribeOptions) (*plegv1.WatchRequest, error) {
	r := &plegv1.WatchRequest{
		Name:          o.Name,
		Replay:        o.Replay,
		Bookmarks:     o.Bookmarks,
		Statuses:      o.Statuses,
		Since:         FromTime(o.Since),
		Namespaces:    o.Filter.Namespaces,
		LabelSelector: o.Filter.Selector,
		OmitSandboxes: o.Filter.OmitSandboxes,
		NetworkEvents: o.Filter.NetworkEvents,
	}
	switch {
	case o.After == pleg.Position{}:
	case o.After.Epoch == "":
		return nil, fmt.Errorf("After has no epoch, so its number %d may be of another pipeline", o.After.Seq)
	case r.Since != nil:
		return nil, errors.New("After and Since exclude each other")
	default:
		r.ResumeAfter = FromPosition(o.After)
	}
	for _, t := range o.Filter.Types {
		number, ok := FromEventType(t)
		if !ok {
			return nil, fmt.Errorf("Filter.Types has the unknown event type %q", t)
		}
		r.Types = append(r.Types, number)
	}
	for _, uid := range o.Filter.PodUIDs {
		r.PodUids = append(r.PodUids, string(uid))
	}
	return r, nil
}

// ToOptions returns the subscription that a request describes. It checks only what Subscribe
// cannot check.
func ToOptions(r *plegv1.WatchRequest) (pleg.SubscribeOptions, error) {
	o := pleg.SubscribeOptions{
		Name:      r.GetName(),
		Replay:    r.GetReplay(),
		Bookmarks: r.GetBookmarks(),
		Statuses:  r.GetStatuses(),
		Filter: pleg.Filter{
			Namespaces:    r.GetNamespaces(),
			Selector:      r.GetLabelSelector(),
			OmitSandboxes: r.GetOmitSandboxes(),
			NetworkEvents: r.GetNetworkEvents(),
		},
	}
	if after := r.GetResumeAfter(); after != nil {
		if after.GetEpoch() == "" {
			return o, fmt.Errorf("resume_after has no epoch, so its number %d may be of another pipeline", after.GetSeq())
		}
		o.After = pleg.Position{Epoch: after.GetEpoch(), Seq: after.GetSeq()}
	}
	if since := r.GetSince(); since != nil {
		o.Since = since.AsTime().Local()
	}
	for _, number := range r.GetTypes() {
		if number == plegv1.EventType_EVENT_TYPE_UNSPECIFIED {
			return o, errors.New("types has an unspecified type")
		}
		o.Filter.Types = append(o.Filter.Types, ToEventType(number))
	}
	for _, uid := range r.GetPodUids() {
		o.Filter.PodUIDs = append(o.Filter.PodUIDs, pleg.PodUID(uid))
	}
	return o, nil
}
