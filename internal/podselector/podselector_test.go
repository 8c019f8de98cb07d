package podselector_test

import (
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podselector"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ name, text, err string }{
		{"empty", " ", ""},
		{"usual", "app=web,tier in (a, b),!test", ""},
		{"as many requirements as allowed", strings.Repeat("!a,", 63) + "!a", ""},
		{"one more", strings.Repeat("!a,", 64) + "!a", "65 requirements, the limit is 64"},
		{"as long as allowed", "a in (" + strings.Repeat("b,", 2044) + "b)", ""},
		{"one byte more", "a in (" + strings.Repeat("b,", 2044) + "bb)", "4097 bytes, the limit is 4096"},
		{"bad", "a in", `"a in" is not a label selector`},
	} {
		_, err := podselector.Parse(test.text)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", test.name, err, test.err)
		}
	}
}
