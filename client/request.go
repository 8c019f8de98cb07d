package client

import (
	"fmt"
	"math"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
)

// request returns the request for the server. It always asks for bookmarks: they keep
// the position of a watch with few events within the server's history.
func (o *WatchOptions) request() (*plegv1.WatchRequest, error) {
	r := &plegv1.WatchRequest{
		Name:          o.Name,
		Buffer:        uint32(o.Buffer),
		Bookmarks:     true,
		Namespaces:    o.Namespaces,
		LabelSelector: o.Selector,
		OmitSandboxes: o.OmitSandboxes,
		NetworkEvents: o.NetworkEvents,
	}
	if o.Buffer < 0 || o.Buffer > math.MaxInt32 {
		return nil, fmt.Errorf("WatchOptions.Buffer is out of range: %d", o.Buffer)
	}
	if o.Replay && o.After != nil {
		return nil, fmt.Errorf("WatchOptions.Replay and After exclude each other: a watch that resumes gets a replay if necessary")
	}
	if o.After != nil {
		r.ResumeAfter = &plegv1.Position{Epoch: o.After.Epoch, Seq: o.After.Seq}
	}
	for _, t := range o.Types {
		number, ok := wire.FromEventType(t)
		if !ok {
			return nil, fmt.Errorf("WatchOptions.Types has the unknown event type %q", t)
		}
		r.Types = append(r.Types, number)
	}
	for _, uid := range o.PodUIDs {
		r.PodUids = append(r.PodUids, string(uid))
	}
	return r, nil
}
