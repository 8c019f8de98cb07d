package kit

import (
	"os"
	"testing"
)

// Golden compares a text with a file. UPDATE_GOLDEN=1 accepts a change: read it first.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	Must(t, err)
	if got != string(want) {
		t.Errorf("%s (UPDATE_GOLDEN=1 accepts a change):\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
