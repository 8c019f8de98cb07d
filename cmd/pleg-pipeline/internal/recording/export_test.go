package recording

import (
	"io"
	"testing"
)

// DivideLimits makes the limits of recordings smaller until the test ends.
func DivideLimits(t *testing.T, by int) {
	t.Helper()
	before := limits
	t.Cleanup(func() { limits = before })
	limits.bytes, limits.fields, limits.items = limits.bytes/by, limits.fields/by, limits.items/by
}

// NewShortRecorder returns a recorder with a queue of this length.
func NewShortRecorder(out Output, queue int) *Recorder {
	return &Recorder{Tap: newTap(queue), out: out}
}

// Save writes what Run has kept, after it has returned.
func (i *Incidents) Save(to io.Writer) error { return i.save(to) }

// KeepTexts ends the redaction.
func (i *Incidents) KeepTexts() { i.encoder = newEncoder(false) }
