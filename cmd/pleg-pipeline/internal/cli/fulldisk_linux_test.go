package cli_test

import (
	"os"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Only Linux has /dev/full.
func TestRunReportsFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	kit.Must(t, err)
	defer full.Close()
	s := start(t, full, "run", "--simulate=1")
	s.ends(t, cli.ExitFailure)
	if want := "write output: "; !strings.Contains(s.stderr.String(), want) {
		t.Errorf("stderr = %q, want %q", s.stderr, want)
	}
}
