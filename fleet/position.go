package fleet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Position is a place in the stream of a cluster: text that [Watch] reads. A watch that resumes after
// the empty one gets a Gap and a replay.
type Position string

// ParsePosition returns an error if the text is not a position.
func ParsePosition(text string) (Position, error) {
	if _, err := parsePlace(text); err != nil {
		return "", fmt.Errorf("%q is not a position of a fleet: want STREAM:MESSAGE, such as 18a5b5b0c2a7e400:120", text)
	}
	return Position(text), nil
}

// place is what a position says.
type place struct {
	// stream is when the stream was created. One that was deleted and created again has another
	// time.
	stream string
	// message is the sequence number of the last message that the watch has.
	message uint64
	// stored is when the server stored the message, in nanoseconds since 1970; 0 if that is
	// not known. It tells the message from another one that has its number, because the
	// servers had lost their last messages.
	stored int64
}

// position returns STREAM:MESSAGE, and @STORED in hexadecimal digits unless that is 0.
func (p place) position() Position {
	text := fmt.Sprintf("%s:%d", p.stream, p.message)
	if p.stored > 0 {
		text += fmt.Sprintf("@%x", p.stored)
	}
	return Position(text)
}

func parsePlace(text string) (p place, err error) {
	stream, at, ok := strings.Cut(text, ":")
	message, stored, timed := strings.Cut(at, "@")
	p.stream = stream
	p.message, err = strconv.ParseUint(message, 10, 64)
	var errStored error
	if timed {
		p.stored, errStored = strconv.ParseInt(stored, 16, 64)
	}
	if !ok || stream == "" || p.stored < 0 {
		err = strconv.ErrSyntax
	}
	return p, errors.Join(err, errStored)
}
