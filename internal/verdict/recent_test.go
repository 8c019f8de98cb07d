package verdict_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// TestTookIsTheMedianOfTheLastMinute has a slow runtime that recovers.
func TestTookIsTheMedianOfTheLastMinute(t *testing.T) {
	var r verdict.Recent
	now := time.Unix(1000, 0)
	inspect := func(pods string, took, want time.Duration) {
		t.Helper()
		for _, pod := range pods {
			r.Ended(pleg.PodUID(pod), took, now)
		}
		if got := r.Took(now, time.Time{}); got != want {
			t.Errorf("after inspections of %q with %v: %v, want %v", pods, took, got, want)
		}
	}
	inspect("", 0, 0)
	inspect("aaaaaa", 2*time.Second, 0) // one slow pod
	inspect("b", 2*time.Second, 0)
	inspect("cde", 2*time.Second, 2*time.Second)
	inspect("fgh", 10*time.Millisecond, 2*time.Second)
	inspect("ij", 10*time.Millisecond, 10*time.Millisecond)
	now = now.Add(time.Minute)
	inspect("", 0, 0)
	inspect("k", 2*time.Second, 0) // the events before are too old
}
