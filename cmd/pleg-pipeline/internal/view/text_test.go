package view_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// hostile has what a terminal interprets: a cursor movement, DEL, a C1 control, two changes
// of direction, and line breaks.
const hostile = "a\x1b[2J\x7f\u009b31m\u202eb\u2066c\r\nd é"

// interpreted are the characters that must not reach a terminal; the line break at the end
// is the printer's own.
var interpreted = regexp.MustCompile("[\\x00-\\x09\\x0b-\\x1f\\x7f\u0080-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

func TestNoFormatMovesTheCursor(t *testing.T) {
	ev := pleg.Event{Type: pleg.ContainerDied, PodName: hostile, Reason: hostile}
	for _, text := range view.Formats() {
		var out strings.Builder
		if err := view.EventPrinter(&out, view.PrintOptions{Format: view.Format(text)}).Print(fleet.Event{Event: ev}); err != nil {
			t.Fatal(err)
		}
		if bad := interpreted.FindAllString(out.String(), -1); len(bad) > 0 || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %q has %q, want one line that a terminal interprets nothing of", text, out.String(), bad)
		}
		var back pleg.Event
		if text == "json" && (json.Unmarshal([]byte(out.String()), &back) != nil || back.PodName != hostile) {
			t.Errorf("the name is %q, want %q", back.PodName, hostile)
		}
	}
}
