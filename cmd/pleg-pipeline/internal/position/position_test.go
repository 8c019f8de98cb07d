package position_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/position"
)

func TestFormatReversesParse(t *testing.T) {
	for _, test := range []struct {
		in    string
		epoch string
		seq   uint64
	}{
		{"0", "", 0},
		{"18446744073709551615", "", 1<<64 - 1},
		{"3c5e:7", "3c5e", 7},
		{"a:b:7", "a:b", 7},
	} {
		epoch, seq, err := position.Parse(test.in)
		if err != nil || epoch != test.epoch || seq != test.seq {
			t.Errorf("Parse(%q) = %q, %d, %v", test.in, epoch, seq, err)
		}
		if got := position.Format(epoch, seq); got != test.in {
			t.Errorf("Format(%q, %d) = %q, want %q", epoch, seq, got, test.in)
		}
	}
}

func TestParseRejectsBadPositions(t *testing.T) {
	for _, in := range []string{"", ":", "x", "3c5e:", "3c5e:-1", "3c5e:+1", "18446744073709551616", "1 ", "1:\n"} {
		if epoch, seq, err := position.Parse(in); err == nil {
			t.Errorf("Parse(%q) = %q, %d, want an error", in, epoch, seq)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"7", "3c5e:7", "a:b:7", ":7", "a:-1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		epoch, seq, err := position.Parse(s)
		if err != nil {
			return
		}
		if again, n, err := position.Parse(position.Format(epoch, seq)); err != nil || again != epoch || n != seq {
			t.Errorf("Parse(%q) = %q, %d, but parsed again after Format: %q, %d, %v", s, epoch, seq, again, n, err)
		}
	})
}
