package lister_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
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
		"unavailable":                  {fmt.Errorf("list: %w", pleg.ErrUnavailable), false, period + 4*retryPeriod},
		"unavailable, with a stream":   {fmt.Errorf("list: %w", pleg.ErrUnavailable), true, proof + periodWithEvents + 4*retryPeriod},
		"another error":                {errList, false, 2 * period},
		"another error, with a stream": {errList, true, proof + periodWithEvents + period},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := time.Now().Add(period)
				if tc.stream {
					from = time.Now().Add(proof + periodWithEvents)
				}
				f := newFixture(t, faultyRuntime(func(context.Context) error {
					if since := time.Since(from); since >= 0 && since < outage {
						return tc.err
					}
					return nil
				}))
				if tc.stream {
					f.openStream(t)
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
		rt := faultyRuntime(plegtest.Fail(pleg.ErrUnavailable))
		f := newFixture(t, rt)
		time.Sleep(10*period - time.Millisecond)
		f.stop()
		f.requireEnded(t)
		lists, lines := rt.Counts().Lists, strings.Count(f.logged.String(), "relist failed")
		if lists != 50 || lines != 10 {
			t.Errorf("%d lists and %d lines in ten periods, want 50 and 10", lists, lines)
		}
	})
}
