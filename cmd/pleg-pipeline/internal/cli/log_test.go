package cli_test

import (
	"errors"
	"fmt"
	"log/slog"
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
		log.Info("another message")
		time.Sleep(time.Second)
		for range 10 {
			log.With("more", true).Info("pod skipped")
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
		for range 21 {
			log.Error("one too many")
		}
		time.Sleep(time.Second)
		out.Reset()
		log.WithGroup("pod").Error("one too many", "name", "web-0")
		if !strings.HasSuffix(out.String(), " stage=test pod.name=web-0 pod.suppressed=1\n") {
			t.Errorf("the next line is %q, want the one suppressed line", &out)
		}
	})
}

// A line is written from the level of the flag on, a notice at each level, in the format of the lines.
func TestLevelsAndFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text, object = "time=2000-01-01T00:00:00.000Z level=%s msg=said n=7 pod=\"\\u202eweb\"\n", `{"time":"2000-01-01T00:00:00Z","level":"%s","msg":"said","n":7,"pod":"\u202eweb"}` + "\n"
		levels := []string{"debug", "info", "warn", "error"}
		for n, level := range levels {
			for format, line := range map[string]string{"text": text, "json": object} {
				var out, want strings.Builder
				log, say := cli.NewConsole(&out, level, format)
				for _, of := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
					log.Log(t.Context(), of, "said", "n", 7, "pod", "\u202eweb") // turns the text round
				}
				say(t.Context(), "%d \x1b pods", 2)
				for _, of := range levels[n:] {
					fmt.Fprintf(&want, line, strings.ToUpper(of))
				}
				want.WriteString(map[string]string{"text": "pleg-pipeline: 2 ? pods\n", "json": `{"time":"2000-01-01T00:00:00Z","level":"INFO","msg":"2 ? pods"}` + "\n"}[format])
				if out.String() != want.String() {
					t.Errorf("%s, %s: %s, want %s", level, format, &out, &want)
				}
			}
		}
	})
}

// Values are cut to 1 KiB, notices to 4 KiB, between two characters, and say how long they were.
func TestLongTextsAreCut(t *testing.T) {
	for n, want := range map[int]string{
		1024: "x" + strings.Repeat("y", 1023), 1025: "x" + strings.Repeat("y", 1023) + "... (1025 bytes)",
	} {
		value := ("x" + strings.Repeat("y", n))[:n]
		var out strings.Builder
		cli.NewLog(&out).Info("m", "text", value, "err", errors.New(value))
		if line := strings.ReplaceAll(out.String(), `"`, ""); !strings.HasSuffix(line, " text="+want+" err="+want+"\n") {
			t.Errorf("%d bytes: %s", n, &out)
		}
	}
	var out strings.Builder
	cli.NewLog(&out).Info("m", "text", "x"+strings.Repeat("é", 600))
	if want := "x" + strings.Repeat("é", 511) + "... (1201 bytes)"; !strings.Contains(out.String(), want) {
		t.Errorf("%s, want %s", &out, want)
	}
	_, say := cli.NewConsole(&out, "error", "text")
	for n, want := range map[int]string{4096: "", 4097: "... (4097 bytes)"} {
		out.Reset()
		say(t.Context(), "%s", strings.Repeat("z", n))
		if want := "pleg-pipeline: " + strings.Repeat("z", 4096) + want + "\n"; out.String() != want {
			t.Errorf("%d bytes: %s", n, &out)
		}
	}
}
