package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Errors back off and are logged once, until there is another or the receiver accepts something. After the last
// error, the receiver wants to rest for longer.
func TestLoop(t *testing.T) {
	var log kit.Log
	var waits []time.Duration
	ended := 0
	l := exporter.Loop{
		Log: log.Logger(), Failed: "cannot send", Recovered: "sends again", Backoff: backoff.Backoff{Min: time.Second, Max: time.Hour},
		Count: func(error) time.Duration {
			if len(waits) == 5 {
				return time.Minute
			}
			return 0
		},
		Ended: func() { ended++ },
	}
	l.Wait = func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		if _, err := l.Status(); err == nil {
			t.Errorf("no error is reported while it waits after failure %d", len(waits))
		}
		return nil
	}
	err := l.Run(t.Context(), func(ctx context.Context) error {
		if len(waits) == 4 {
			l.Works(ctx)
		}
		l.Acknowledged()
		if at, err := l.Status(); at.IsZero() || (err == nil) != (len(waits) == 0 || len(waits) == 4) {
			t.Errorf("after %d failures: %v, %v", len(waits), at, err)
		}
		if len(waits) == 6 {
			return exporter.ErrSourceEnded
		}
		if len(waits) == 2 {
			return errors.New("refused")
		}
		return errors.New("broken")
	})
	if err != nil || ended != 1 {
		t.Errorf("Run() = %v, want no error after the end of the source; Ended was called %d times", err, ended)
	}
	if err := l.Run(t.Context(), nil); err == nil || err.Error() != "it has already run, which it does only once: create a new one" || ended != 1 {
		t.Errorf("a second Run() = %v, want an error; Ended was called %d times", err, ended)
	}
	if len(waits) != 6 || waits[3] < 4*time.Second || waits[4] > time.Second || waits[5] != time.Minute {
		t.Errorf("waits %v, want them to double, to begin again after a success, and a minute if that is asked for", waits)
	}
	log.RequireLines(t, 3, `level=WARN msg="cannot send" err=broken retryIn=`)
	log.RequireLines(t, 1, `level=WARN msg="cannot send" err=refused retryIn=`)
	for _, wait := range []time.Duration{waits[0], waits[2], waits[3], waits[4]} {
		log.RequireLines(t, 1, fmt.Sprint(" retryIn=", wait, "\n"))
	}
	log.RequireLines(t, 1, `level=INFO msg="sends again"`)
	if exporter.ErrSourceEnded.Error() != "there are no more events" {
		t.Errorf("the end of the source is %q", exporter.ErrSourceEnded)
	}
}

// Without a Wait of its own the loop waits for the time that Count asks for. A success after no error is not
// logged.
func TestLoopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		var at []time.Duration
		began, counted := time.Now(), errors.New("none")
		l := exporter.Loop{
			Log: log.Logger(), Failed: "cannot send", Recovered: "sends again",
			Count: func(err error) time.Duration { counted = err; return time.Minute }, Ended: func() {},
		}
		l.Works(t.Context())
		log.RequireLines(t, 0, "msg")
		errBroken := errors.New("broken")
		kit.Must(t, l.Run(t.Context(), func(ctx context.Context) error {
			if at = append(at, time.Since(began)); len(at) == 3 {
				l.Works(ctx)
				l.Works(ctx)
				return fmt.Errorf("read: %w", exporter.ErrSourceEnded)
			}
			return errBroken
		}))
		if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(at, want) || !errors.Is(counted, errBroken) {
			t.Errorf("sessions at %v, want %v; counted %v", at, want, counted)
		}
		log.RequireLines(t, 1, "cannot send")
		log.RequireLines(t, 1, "sends again")
	})
}

// If the caller ends the exporter, that is no failure.
func TestEndOfContextIsNoError(t *testing.T) {
	var log kit.Log
	ctx, stop := context.WithCancel(t.Context())
	l := exporter.Loop{Log: log.Logger(), Failed: "cannot send", Count: func(error) time.Duration { return time.Hour }, Ended: func() {}}
	if err := l.Run(ctx, func(context.Context) error { stop(); return errors.New("broken") }); err != nil {
		t.Errorf("Run() = %v at the end of a session, want nil", err)
	}
	log.RequireLines(t, 0, "cannot send")
	for _, wait := range []func(context.Context, time.Duration) error{nil, backoff.Wait} {
		synctest.Test(t, func(t *testing.T) {
			sessions := 0
			ctx, stop := context.WithCancel(t.Context())
			l := exporter.Loop{
				Log: slog.New(slog.DiscardHandler), Failed: "cannot send", Count: func(error) time.Duration { return time.Hour }, Ended: func() {}, Wait: wait,
			}
			time.AfterFunc(time.Minute, stop)
			if err := l.Run(ctx, func(context.Context) error { sessions++; return errors.New("broken") }); err != nil || sessions != 1 {
				t.Errorf("Run() = %v in a pause after %d sessions, want nil after one", err, sessions)
			}
		})
	}
}
