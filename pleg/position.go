package pleg

import (
	"fmt"
	"strconv"
	"strings"
)

// Position is the place of an event in the log of one pipeline. A subscriber that stores it can
// resume there.
type Position struct {
	// Epoch names the pipeline. Sequence numbers of different pipelines are not comparable,
	// so that a position without an epoch cannot be resumed.
	Epoch string
	// Seq is the last sequence number that the subscriber got.
	Seq uint64
}

// ParsePosition reverses [Position.String]. It returns an error if the epoch or the
// number is missing.
func ParsePosition(s string) (Position, error) {
	// The number contains no colon, so the last colon ends the epoch.
	if i := strings.LastIndexByte(s, ':'); i > 0 {
		if seq, err := strconv.ParseUint(s[i+1:], 10, 64); err == nil {
			return Position{Epoch: s[:i], Seq: seq}, nil
		}
	}
	if _, err := strconv.ParseUint(strings.TrimPrefix(s, ":"), 10, 64); err == nil {
		return Position{}, fmt.Errorf("%q has no epoch, so it may be a number of another pipeline: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120", s)
	}
	return Position{}, fmt.Errorf("%q is not a position: want EPOCH:SEQ, such as 3c5e1f0a9b7d2468:120", s)
}

// String returns EPOCH:SEQ.
func (p Position) String() string {
	return p.Epoch + ":" + strconv.FormatUint(p.Seq, 10)
}

// Position returns the position of an event. It returns false for a Gap, because a replay follows the
// Gap: a subscriber that resumes there could miss something.
func (e Event) Position() (Position, bool) {
	return Position{Epoch: e.Epoch, Seq: e.Seq}, e.Epoch != "" && e.Type != Gap
}
