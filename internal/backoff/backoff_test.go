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

func TestComplete(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		shortest, longest         time.Duration
		wantShortest, wantLongest time.Duration
		wantErr                   string
	}{
		"defaults":        {wantShortest: 2 * second, wantLongest: 9 * second},
		"a long shortest": {shortest: 10 * second, wantShortest: 10 * second, wantLongest: 10 * second},
		"a short longest": {longest: second, wantShortest: second, wantLongest: second},
		"both":            {shortest: second, longest: 3 * second, wantShortest: second, wantLongest: 3 * second},
		"in the wrong order": {
			shortest: 3 * second, longest: second,
			wantErr: "Options.MinBackoff must not exceed Options.MaxBackoff, got 3s and 1s",
		},
		"negative": {shortest: -1, wantErr: "Options.MinBackoff must be positive, got -1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			shortest, longest := tc.shortest, tc.longest
			err := backoff.Complete(&shortest, &longest, 2*second, 9*second)
			switch {
			case tc.wantErr != "":
				if err == nil || err.Error() != tc.wantErr {
					t.Errorf("got error %v, want %s", err, tc.wantErr)
				}
			case err != nil || shortest != tc.wantShortest || longest != tc.wantLongest:
				t.Errorf("got %v, %v and %v, want %v and %v", shortest, longest, err, tc.wantShortest, tc.wantLongest)
			}
		})
	}
}
