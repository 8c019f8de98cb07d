package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

func TestNextDoublesUpToMax(t *testing.T) {
	b := backoff.Backoff{Min: time.Second, Max: 6 * time.Second}
	for range 2 {
		for i, most := range []time.Duration{1, 2, 4, 6, 6} {
			most *= time.Second
			if got := b.Next(); got < most/2 || got > most {
				t.Errorf("wait %d is %v, want %v to %v", i, got, most/2, most)
			}
		}
		b.Reset()
	}
}

// A wait that the end of its context cuts says so: its caller must not try again.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, errStop := time.Now(), errors.New("the program ends")
		if err := backoff.Wait(t.Context(), time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("Wait = %v after %v, want nil after a second", err, time.Since(began))
		}
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errStop) })
		if err := backoff.Wait(ctx, time.Hour); !errors.Is(err, errStop) || time.Since(began) != 2*time.Second {
			t.Errorf("Wait = %v after %v, want the cause of its context", err, time.Since(began)-time.Second)
		}
	})
}
