package dispatcher

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// DefaultBuffer is the capacity of the kubelet's event channel (v1.36).
const DefaultBuffer = 1000

// Position is a place in the stream of one pipeline's events.
type Position struct {
	// Epoch is that of the pipeline, as a mark carries it. If empty, Seq is
	// taken to be of the present one, which cannot be checked then.
	Epoch string
	// Seq is the last sequence number the subscriber has seen.
	Seq uint64
}

// SubscribeOptions configure one subscriber. The zero value asks for all events
// from now on, but network events.
type SubscribeOptions struct {
	// Name tells the subscriber apart in logs and metrics; UTF-8. If empty, one
	// is made up.
	Name string
	// Buffer is the number of events that may wait to be read; the memory for
	// them is taken at once, some 200 bytes each. If zero, [DefaultBuffer].
	Buffer int

	// Replay asks for the present state first: for each container and sandbox
	// the event that brought it where it is, marked as replayed, in the order
	// of their sequence numbers, and then one Synced.
	Replay bool
	// After asks for the events behind this position first, and then one
	// Synced. If they cannot be had any more, a Gap says so and a replay
	// follows. The zero value asks for nothing.
	After Position
	// Bookmarks asks for a mark each time that everything listed so far has
	// been delivered.
	Bookmarks bool

	// Types are the event types wanted. If empty, all. Marks and the PodSync
	// that stands for missed events come in any case.
	Types []pleg.EventType
	// Namespaces and PodUIDs are the pods wanted. If empty, all.
	Namespaces []string
	PodUIDs    []pleg.PodUID
	// Selector is a Kubernetes label selector on the pod's labels, such as
	// "app=web,tier!=test". If empty, all.
	Selector string
	// OmitSandboxes leaves out the events of pod sandboxes.
	OmitSandboxes bool
	// NetworkEvents asks for NetworkSetupCompleted and NetworkFailed.
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
		return filter{}, errors.New("Replay and After exclude each other: a subscriber that resumes gets a replay if it has to")
	}
	return newFilter(*o)
}
