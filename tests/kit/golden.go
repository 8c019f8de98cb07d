package kit

import (
	"os"
	"testing"
)

// Golden compares a text with a file. UPDATE_GOLDEN=1 accepts a change: read it first.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (UPDATE_GOLDEN=1 accepts a change):\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
