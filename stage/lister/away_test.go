package lister_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

// While the runtime is unavailable it is listed once per retry period, with an
// event stream or without. After any other error the relist period applies.
func TestUnavailableRuntimeIsListedMoreOften(t *testing.T) {
	const outage = 700 * time.Millisecond
	for name, tc := range map[string]struct {
		err    error
		stream bool
		want   time.Duration // of the first listing after the second
	}{
		"away":                   {fmt.Errorf("list: %w", pleg.ErrUnavailable), false, period + 4*retryPeriod},
		"away, with a stream":    {fmt.Errorf("list: %w", pleg.ErrUnavailable), true, proof + periodWithEvents + 4*retryPeriod},
		"another error":          {errList, false, 2 * period},
		"another, with a stream": {errList, true, proof + periodWithEvents + period},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := time.Now().Add(period)
				if tc.stream {
					from = time.Now().Add(proof + periodWithEvents)
				}
				f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
					if gone := time.Since(from); gone >= 0 && gone < outage {
						return nil, tc.err
					}
					return nil, nil
				}, instrument.Registry{})
				if tc.stream {
					f.follow(t)
				} else {
					f.requireNext(t, 0, false)
				}
				f.requireNext(t, tc.want, tc.stream)
			})
		})
	}
}

func TestUnavailableRuntimeIsLoggedOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var calls int
		l, err := lister.New(lister.Options{
			Runtime:         fakeRuntime(func(context.Context) ([]*pleg.Pod, error) { calls++; return nil, pleg.ErrUnavailable }),
			RelistPeriod:    period,
			RelistThreshold: threshold, RetryPeriod: retryPeriod, RelistPeriodWithEvents: periodWithEvents,
			RelistThresholdWithEvents: thresholdWithEvents, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*period-time.Millisecond)
		defer cancel()
		_ = l.Run(ctx, make(chan stage.Listing)) // the end of ctx
		if lines := strings.Count(log.String(), "relist failed"); calls != 50 || lines != 10 {
			t.Errorf("%d lists and %d lines in ten periods, want 50 and 10", calls, lines)
		}
	})
}
