package recording

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	plegwire "github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// nodeState contains the node's problems from a time on. No answer of the runtime shows them.
type nodeState struct {
	at     time.Duration
	report pleg.Report
}

// nodeLine returns the part of a status about the node, as a line; false if the line before was the same.
// The details of troubles may name anything: they are left out, not redacted.
func (e *encoder) nodeLine(at time.Duration, s pleg.Status) (line, bool) {
	of := pleg.Status{Troubles: s.Troubles, Details: ofNode(s.Details)}
	message := plegwire.FromPipelineStatus(of)
	if e.redact != nil {
		for _, t := range message.GetTroubles() {
			t.Detail = ""
		}
	}
	for _, u := range message.GetUnread() { // changes each second
		u.Bytes = 0
	}
	text := e.text(message)
	if bytes.Equal(text, e.node) || e.node == nil && string(text) == "{}" {
		return line{}, false
	}
	e.node = text
	return line{At: offset(at), Node: text, size: len(text)}, true
}

// ofNode returns the part of the details that is about the node alone.
func ofNode(details any) nodestate.State {
	n := nodestate.Of(details)
	return nodestate.State{Stuck: n.Stuck, Unread: n.Unread, Disk: n.Disk}
}

// addNode adds the node's state in a line.
func (l *loader) addNode(at time.Duration, text []byte) error {
	var message plegv1.PipelineStatus
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &message); err != nil {
		return err
	}
	s := plegwire.ToPipelineStatus(&message)
	l.nodes = append(l.nodes, nodeState{at, pleg.Report{Troubles: s.Troubles, Details: ofNode(s.Details)}})
	return nil
}

// Report adds the node's problems at the present time of the replay to a report. Their age is the
// recorded age.
func (s *Server) Report(r *pleg.Report) {
	s.mu.Lock()
	zero, now := s.zero, s.now()
	s.mu.Unlock()
	var of pleg.Report
	for _, n := range s.recording.nodes {
		if n.at <= now {
			of = n.report
		}
	}
	then := func(since time.Time) time.Time {
		return zero.Add(since.Sub(s.recording.Header.Began))
	}
	nodestate.Change(&r.Details, func(n *nodestate.State) {
		was := nodestate.Of(of.Details)
		for _, stuck := range was.Stuck {
			stuck.Since = then(stuck.Since)
			n.Stuck = append(n.Stuck, stuck)
		}
		for _, unread := range was.Unread {
			unread.Since = then(unread.Since)
			n.Unread = append(n.Unread, unread)
		}
		if was.Disk != nil {
			disk := *was.Disk
			disk.Since = then(disk.Since)
			n.Disk = &disk
		}
	})
	for _, t := range of.Troubles {
		t.Since = then(t.Since)
		r.Troubles = append(r.Troubles, t)
	}
}
