package server

import (
	"errors"
	"fmt"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxName is the greatest length of a watcher's name, which is in logs and metrics, in
// bytes.
const maxName = 100

// subscribeOptions returns the subscription that a request describes. It checks only
// what Subscribe cannot check.
func (s *Server) subscribeOptions(r *plegv1.WatchRequest) (pipeline.SubscribeOptions, error) {
	o := pipeline.SubscribeOptions{
		Name:          r.GetName(),
		Buffer:        s.options.Buffer,
		Replay:        r.GetReplay(),
		Bookmarks:     r.GetBookmarks(),
		Namespaces:    r.GetNamespaces(),
		Selector:      r.GetLabelSelector(),
		OmitSandboxes: r.GetOmitSandboxes(),
		NetworkEvents: r.GetNetworkEvents(),
	}
	if len(o.Name) > maxName {
		return o, fmt.Errorf("name has %d bytes, the limit is %d", len(o.Name), maxName)
	}
	if r.GetBuffer() > uint32(s.options.MaxBuffer) {
		return o, fmt.Errorf("buffer is %d, the limit is %d", r.GetBuffer(), s.options.MaxBuffer)
	}
	if r.GetBuffer() > 0 {
		o.Buffer = int(r.GetBuffer())
	}
	for _, number := range r.GetTypes() {
		if number == plegv1.EventType_EVENT_TYPE_UNSPECIFIED {
			return o, errors.New("types has an unspecified type")
		}
		o.Types = append(o.Types, wire.ToEventType(number))
	}
	for _, uid := range r.GetPodUids() {
		o.PodUIDs = append(o.PodUIDs, pleg.PodUID(uid))
	}
	if after := r.GetResumeAfter(); after != nil {
		if o.Replay {
			return o, errors.New("replay and resume_after exclude each other: a client that resumes gets a replay if necessary")
		}
		o.After = s.position(after)
	}
	return o, nil
}

// position adds the current epoch if the client sent none, because Subscribe ignores the
// zero position.
func (s *Server) position(p *plegv1.Position) pipeline.Position {
	at := pipeline.Position{Epoch: p.GetEpoch(), Seq: p.GetSeq()}
	if at.Epoch == "" {
		at.Epoch = s.pipe.Epoch()
	}
	return at
}
