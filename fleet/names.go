package fleet

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The names on the server.
const (
	// EventStream is the stream of the events of all clusters. It takes the subjects
	// pleg.v1.ev.CLUSTER.NODE. With more than one part ([Limits].Parts), there is a stream and
	// there are buckets for each, whose names end with -1 and so on, except those of the
	// first part, and the subjects are pleg.v1.ev.CLUSTER.PART.NODE.
	EventStream = "pleg-events"
	// StateBucket is the key-value bucket with the state of every node, CLUSTER.NODE,
	// and of every pod, CLUSTER.NODE.NAMESPACE.UID.
	StateBucket = "pleg-state"
	// AgentBucket is the key-value bucket with the agents that publish now,
	// CLUSTER.NODE. A value that is not renewed disappears after [LeaseTTL].
	AgentBucket = "pleg-agents"
)

const eventSubjects = "pleg.v1.ev"

func nodeKey(cluster, node string) string { return token(cluster) + "." + token(node) }

func podKey(cluster, node, namespace string, uid pleg.PodUID) string {
	return nodeKey(cluster, node) + "." + token(namespace) + "." + token(string(uid))
}

// nodeOf returns the node in a key.
func nodeOf(key string) (string, error) {
	tokens := strings.Split(key, ".")
	if len(tokens) < 2 {
		return "", fmt.Errorf("%q names no node", key)
	}
	return fromToken(tokens[1])
}

// token writes a name as one token of a subject: a dot becomes "_", every other byte
// that is not a letter, a digit or "-" becomes "=" and its two hexadecimal digits, and
// the empty name becomes "=". A name that is longer than Kubernetes allows becomes "=-" and its
// hash: the server refuses long subjects. No two names have the same token.
func token(name string) string {
	switch {
	case name == "":
		return "="
	case len(name) > maxName:
		return "=-" + hash(name)
	}
	return fromQuery.Replace(url.QueryEscape(name))
}

func fromToken(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	return url.QueryUnescape(toQuery.Replace(token))
}

// A token is a name in a query of a URL, written without the bytes that a key must not have.
var (
	fromQuery = strings.NewReplacer("%", "=", "+", "=20", "_", "=5F", "~", "=7E", ".", "_")
	toQuery   = strings.NewReplacer("=", "%", "_", ".")
)

// maxName is the length of the longest name of a Kubernetes node.
const maxName = 253

// checkName returns an error if a cluster or a node cannot have this name.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s must not be empty", what)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes, the limit is %d", what, len(name), maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }):
		return fmt.Errorf("%s is %q: want printable ASCII without spaces and slashes", what, name)
	}
	return nil
}

// Position is a place in [EventStream], or one in each part.
type Position struct {
	// Stream names the stream. A stream that was deleted and created again has
	// another name.
	Stream string
	// Message is the sequence number of the last message of which the watch delivered
	// events. The zero value is the beginning.
	Message uint64
	// Events is how many events of this message it delivered; 0 means all.
	Events int
	// Stored is when the server stored the message, in nanoseconds since 1970; 0 if that is
	// not known. It tells the message from another one that has its number, because the
	// servers had lost their last messages.
	Stored int64
	// Parts are the positions in all parts as text, with commas between them, if there is more
	// than one part. Then the other fields are zero.
	Parts string
}

// String returns STREAM:MESSAGE, +EVENTS unless that is 0, and @STORED in hexadecimal digits
// unless that is 0; for the zero value, nothing. Those of several parts have commas between them.
func (p Position) String() string {
	if p.Parts != "" || p == (Position{}) {
		return p.Parts
	}
	text := fmt.Sprintf("%s:%d", p.Stream, p.Message)
	if p.Events > 0 {
		text += fmt.Sprintf("+%d", p.Events)
	}
	if p.Stored > 0 {
		text += fmt.Sprintf("@%x", p.Stored)
	}
	return text
}

// MarshalText writes the position as [Position.String] does.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (p *Position) UnmarshalText(text []byte) (err error) {
	*p = Position{}
	if len(text) > 0 {
		*p, err = ParsePosition(string(text))
	}
	return err
}

// ParsePosition is the inverse of [Position.String].
func ParsePosition(s string) (Position, error) {
	if parts := strings.Split(s, ","); len(parts) > 1 {
		for _, part := range parts {
			if err := new(Position).UnmarshalText([]byte(part)); err != nil {
				return Position{}, err
			}
		}
		return Position{Parts: s}, nil
	}
	stream, place, ok := strings.Cut(s, ":")
	place, stored, timed := strings.Cut(place, "@")
	message, events, hasEvents := strings.Cut(place, "+")
	p := Position{Stream: stream}
	var err, errEvents, errStored error
	p.Message, err = strconv.ParseUint(message, 10, 64)
	if hasEvents {
		p.Events, errEvents = strconv.Atoi(events)
	}
	if timed {
		p.Stored, errStored = strconv.ParseInt(stored, 16, 64)
	}
	if !ok || stream == "" || p.Events < 0 || p.Stored < 0 || errors.Join(err, errEvents, errStored) != nil {
		return Position{}, fmt.Errorf("%q is not a position of a fleet: want STREAM:MESSAGE, such as 18a5b5b0c2a7e400:120", s)
	}
	return p, nil
}

// in returns the position in one part; the zero value, which no stream has, if there is none.
func (p Position) in(of part) (at Position) {
	if parts := strings.Split(p.Parts, ","); len(parts) == of.parts {
		_ = at.UnmarshalText([]byte(parts[of.number]))
	}
	return at
}
