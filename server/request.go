package server

import (
	"errors"
	"fmt"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxName bounds the name of a watcher, in bytes: it is in logs and metrics.
const maxName = 100

// subscribeOptions checks what only the protocol can get wrong; Subscribe
// checks the rest.
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
		return o, fmt.Errorf("name has %d bytes, the most is %d", len(o.Name), maxName)
	}
	if r.GetBuffer() > uint32(s.options.MaxBuffer) {
		return o, fmt.Errorf("buffer is %d, the most is %d", r.GetBuffer(), s.options.MaxBuffer)
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
			return o, errors.New("replay and resume_after exclude each other: who resumes gets a replay if need be")
		}
		o.After = s.position(after)
	}
	return o, nil
}

// position fills in the epoch if the client left it out, since the zero
// position asks for nothing.
func (s *Server) position(p *plegv1.Position) pipeline.Position {
	at := pipeline.Position{Epoch: p.GetEpoch(), Seq: p.GetSeq()}
	if at.Epoch == "" {
		at.Epoch = s.pipe.Epoch()
	}
	return at
}
