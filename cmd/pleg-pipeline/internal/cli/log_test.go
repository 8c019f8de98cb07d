package cli_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// TestLogIsLimited logs as many lines as a hostile runtime can cause.
func TestLogIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := cli.NewLog(&out).With("stage", "test")
		long := strings.Repeat("é", 1<<20)
		for range 1000 {
			log.Warn("pod skipped", "pod", long, "err", errors.New(long))
		}
		if n := strings.Count(out.String(), "pod skipped"); n != 20 {
			t.Errorf("%d lines at once, want 20", n)
		}
		if n := out.Len() / 20; n > 5000 {
			t.Errorf("a line has %d bytes, want its values cut", n)
		}
		out.Reset()
		log.Warn("another message")
		time.Sleep(time.Second)
		for range 10 {
			log.With("more", true).Warn("pod skipped")
		}
		for n := range 100 {
			log.Debug("event", "n", n)
		}
		for text, want := range map[string]int{"another message": 1, "pod skipped": 1, "stage=test more=true suppressed=980": 1, "msg=event": 100} {
			if got := strings.Count(out.String(), text); got != want {
				t.Errorf("%q: %d lines, want %d", text, got, want)
			}
		}
		out.Reset()
		time.Sleep(time.Second)
		log.Warn("pod skipped")
		if !strings.HasSuffix(out.String(), " suppressed=9\n") {
			t.Errorf("the next line is %q, want the lines suppressed since the last", &out)
		}
	})
}
