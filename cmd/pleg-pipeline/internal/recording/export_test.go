package recording

import (
	"io"
	"testing"
)

// DivideLimits makes the limits of recordings smaller until the test ends, and returns the limit of the
// memory.
func DivideLimits(t *testing.T, by int) (memory int) {
	t.Helper()
	before := limits
	t.Cleanup(func() { limits = before })
	limits.text, limits.line, limits.memory = limits.text/by, limits.line/by, limits.memory/by
	return limits.memory
}

// NewShortRecorder returns a recorder with a queue of this length.
func NewShortRecorder(out Output, queue int) *Recorder {
	return &Recorder{Tap: newTap(queue), out: out}
}

// Save writes the calls that Run has kept, after Run has returned.
func (i *Incidents) Save(to io.Writer) error { return i.save(to) }

// KeepTexts ends the redaction.
func (i *Incidents) KeepTexts() { i.encoder = newEncoder(false) }
