package backoff_test

import (
	"testing"
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
