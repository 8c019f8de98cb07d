package dispatcher

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// DefaultBuffer is the capacity of the kubelet's event channel (v1.36), in events.
const DefaultBuffer = 1000

// Position is a place in the stream of one pipeline's events.
type Position struct {
	// Epoch is that of the pipeline, as a mark carries it. If empty, Seq is assumed
	// to be of the present pipeline, which cannot be checked.
	Epoch string
	// Seq is the last sequence number that the subscriber has seen.
	Seq uint64
}

// SubscribeOptions are those of the root package, which documents them.
type SubscribeOptions struct {
	Name          string
	Buffer        int
	Replay        bool
	After         Position
	Bookmarks     bool
	Types         []pleg.EventType
	Namespaces    []string
	PodUIDs       []pleg.PodUID
	Selector      string
	OmitSandboxes bool
	NetworkEvents bool
}

func (o *SubscribeOptions) complete() (filter, error) {
	if !utf8.ValidString(o.Name) {
		return filter{}, fmt.Errorf("Name must be UTF-8, got %q", o.Name)
	}
	if o.Buffer < 0 {
		return filter{}, fmt.Errorf("Buffer must not be negative, got %d", o.Buffer)
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	if o.Replay && o.After != (Position{}) {
		return filter{}, errors.New("Replay and After exclude each other: a subscriber that resumes gets a replay if it needs one")
	}
	return newFilter(*o)
}
