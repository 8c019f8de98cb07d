package kit

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// CheckDocumented requires that the metrics of a registry follow Prometheus's rules, and that the
// page lists exactly these metrics with the prefix.
func CheckDocumented(t *testing.T, registry *prometheus.Registry, page, prefix string) {
	t.Helper()
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	text, err := os.ReadFile(page)
	Must(t, err)
	families, err := registry.Gather()
	Must(t, err)
	for _, f := range families {
		if !strings.Contains(string(text), "| `"+f.GetName()+"` |") {
			t.Errorf("%s lacks %s", page, f.GetName())
		}
	}
	if documented := strings.Count(string(text), "| `"+prefix); documented != len(families) {
		t.Errorf("%s has %d metrics %s…, want %d", page, documented, prefix, len(families))
	}
}
