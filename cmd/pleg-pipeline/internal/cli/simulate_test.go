package cli_test

import (
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestRunStopsBeforeRuntimeAnswers is Ctrl-C while the check of a runtime, which accepts
// and never answers, is still running.
func TestRunStopsBeforeRuntimeAnswers(t *testing.T) {
	t.Parallel()
	l, path := listen(t)
	s := start(t, newTranscript(), "run", "-r", path)
	conn, err := l.Accept()
	kit.Must(t, err)
	defer conn.Close()
	s.stop()
	s.ends(t, cli.ExitOK)
	if want := "before there was an answer"; !strings.Contains(s.stderr.String(), want) {
		t.Errorf("stderr = %q, want %q", s.stderr, want)
	}
}
