package cli_test

import (
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestVerdictEndsWithTheTrouble freezes a runtime while all pods change. Two seconds after it
// continues, nothing is wrong any more.
func TestVerdictEndsWithTheTrouble(t *testing.T) {
	for name, events := range map[string]pipeline.EventsMode{"lists": pipeline.EventsOff, "events": pipeline.EventsAuto} {
		kit.Bubble(t, name, func(t *testing.T) {
			node := simruntime.New(simruntime.Options{Seed: 1})
			node.Populate(simruntime.Population{Pods: 8, Containers: 1})
			s := kit.Simulate(t, node, pipeline.Options{Events: events}, cri.Options{})
			time.Sleep(3 * time.Second)
			inspections := simruntime.Fault{RPC: "ContainerStatus", Hang: true}
			node.Inject(inspections)
			node.Burst(8, simruntime.Restart)
			time.Sleep(1500 * time.Millisecond)
			node.Inject(simruntime.Fault{Hang: true})
			time.Sleep(20 * time.Second)
			if v := verdict.Of(s.Look()); v.Severity != verdict.Problem {
				t.Errorf("frozen: %s, want a problem", v.Text)
			}
			node.ClearAll()
			time.Sleep(2 * time.Second)
			if v := verdict.Of(s.Look()); v.Severity != verdict.OK {
				t.Errorf("2 s after it continued: %s, want OK", v.Text)
			}
			synctest.Wait()
		})
	}
}
