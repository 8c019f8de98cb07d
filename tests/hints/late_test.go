package hints_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// If some client does not read, CRI-O holds back the events of every client and drops
// what does not fit into its channel. Lists then report the changes, and what the late
// events announce is not reported again.
func TestLateEventsReportNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := follow(t, simruntime.Options{Seed: 1}, pipeline.Options{})
		earnTrust(h)
		setEventFaults(t, h.Node, simruntime.EventFaults{Delay: time.Minute})
		h.Churn(1, 2000)
		time.Sleep(2 * time.Minute)
		h.RequireTruth()
		if h.Node.Stats().Events.Dropped == 0 {
			t.Error("no event was dropped: the test needs more of them")
		}
		if kit.Metric(t, h.Metrics, "pleg_missed_events_total") == 0 {
			t.Error("no change was unannounced, want those that lists showed first")
		}
		h.RequirePromises(promises.Stream{NoSync: true})
	})
}
