package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// shown returns what an emulated terminal of 80x24 shows.
func shown(term vt.MockTerm) string {
	var text strings.Builder
	for y := range 24 {
		for x := range 80 {
			text.WriteString(term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// showing waits until an emulated terminal shows a text.
func showing(t *testing.T, term vt.MockTerm, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text := shown(term)
		if strings.Contains(text, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the terminal does not show %q:\n%s", want, text)
		}
	}
}

// TestTop shows a daemon and its own pipeline in a terminal emulator.
func TestTop(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	startDaemon(t, socket)
	for name, args := range map[string][]string{
		"a daemon":     {"top", "--connect", socket},
		"its pipeline": {"top", "--simulate=2", "--churn-rate", "0", "--filter", "app=no word matches"},
	} {
		t.Run(name, func(t *testing.T) {
			term := vt.NewMockTerm()
			out, stderr := newTranscript(), newTranscript()
			code := make(chan int)
			go func() {
				code <- cli.Execute(t.Context(), cli.Process{
					Args: args, Out: out, Err: stderr, Getenv: func(string) string { return "" },
					Terminal: func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(term) },
				})
			}()
			showing(t, term, "healthy")
			showing(t, term, "pods 2")
			if name != "a daemon" {
				showing(t, term, "no pod matches the filter")
			}
			term.SendRaw([]byte("q"))
			if got := <-code; got != cli.ExitOK || out.String() != "" {
				t.Errorf("exit code %d, stdout %q; stderr:\n%s", got, out, stderr)
			}
		})
	}
}

func TestTopNeedsATerminal(t *testing.T) {
	if code, _, stderr := run(t, "top", "--simulate"); code != cli.ExitFailure || !strings.Contains(stderr, "top needs a terminal") {
		t.Errorf("exit code %d, want %d; stderr:\n%s", code, cli.ExitFailure, stderr)
	}
}
