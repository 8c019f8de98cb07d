package fleet

import (
	"fmt"
)

// Position is a place in the stream of a cluster: text that [Watch] reads. A watch that resumes
// after the empty position gets a Gap and a replay.
type Position string

// ParsePosition returns an error if the text is not a position.
func ParsePosition(text string) (Position, error) {
	if _, err := parsePlace(text); err != nil {
		return "", fmt.Errorf("%q is not a position of a fleet: want STREAM:MESSAGE:STORED, such as 18a5b5b0c2a7e400:120:18a5b5b1d0a7e400", text)
	}
	return Position(text), nil
}

// place is what a position says.
type place struct {
	// stream is when the stream was created. A stream that was deleted and created again has
	// another time.
	stream int64
	// message is the sequence number of the last message that the watch has.
	message uint64
	// stored is when the server stored the message; 0 if that is not known. It tells the message
	// from another message with its number, which there is if the server has lost its last
	// messages.
	stored int64
}

func (p place) position() Position {
	return Position(fmt.Sprintf("%x:%d:%x", p.stream, p.message, p.stored))
}

func parsePlace(text string) (p place, err error) {
	_, err = fmt.Sscanf(text, "%x:%d:%x", &p.stream, &p.message, &p.stored)
	if err == nil && string(p.position()) != text {
		err = fmt.Errorf("want %s", p.position())
	}
	return p, err
}
