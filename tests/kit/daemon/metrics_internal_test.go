package daemon

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics("# HELP a b\na{x=\"1 2\"} 1\na{x=\"3\"} 2.5e+06\nb 7\n")
	if err != nil || len(got) != 2 || got["a"] != 2500001 || got["b"] != 7 {
		t.Errorf("parseMetrics() = %v, %v", got, err)
	}
	if _, err := parseMetrics("a x\n"); err == nil {
		t.Error("no error for a metric that has no number")
	}
}
