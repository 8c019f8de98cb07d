package recording

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWindowKeepsChangesBesideLargeState of a node whose state alone is more than maxBytes.
func TestWindowKeepsChangesBesideLargeState(t *testing.T) {
	t.Parallel()
	w := NewWindow()
	for n := range 5 {
		_, _ = w.Write(make([]byte, partBytes))
		w.startPart(offset(n)*offset(time.Minute), make([]byte, maxBytes+1))
		if before := w.parts[0]; len(w.parts) != 2 || before.Len()-before.state != partBytes {
			t.Errorf("when part %d begins there are %d parts, the first with %d bytes of changes; want 2, with %d",
				n, len(w.parts), before.Len()-before.state, partBytes)
		}
	}
}

// TestFailedIncidentRemovesNothing writes while the program ends.
func TestFailedIncidentRemovesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := range maxIncidents {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("incident-19990101T00000%dZ.jsonl.gz", n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Incidents{Dir: dir, Recorder: NewIncidentRecorder("test"), Logger: slog.New(slog.DiscardHandler)}.write(ctx, "PROBLEM")
	files, err := filepath.Glob(filepath.Join(dir, "*1999*"))
	if all, _ := os.ReadDir(dir); err != nil || len(files) != maxIncidents || len(all) != maxIncidents {
		t.Errorf("the folder has %v, want the %d old files", all, maxIncidents)
	}
}
