package invariants_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// illBehaved is a runtime and a store. Whatever it need not do for the pipeline, it does
// wrong.
type illBehaved struct {
	*plegtest.Runtime
	asked, written func()
}

func (r illBehaved) Calls() []pleg.Call { r.asked(); return nil }
func (r illBehaved) Degraded() error    { r.asked(); return nil }

func (r illBehaved) Set(pleg.PodUID, *pleg.PodStatus, error, time.Time) { r.written() }
func (r illBehaved) Delete(pleg.PodUID, time.Time)                      { r.written() }
func (r illBehaved) Touch(pleg.PodUID, time.Time)                       { r.written() }
func (r illBehaved) Observe(time.Time, []pleg.PodUID)                   { r.written() }

// A panic, a Goexit or a block in the embedder's other methods stops no stage, and nobody
// who asks. (A store that blocks is waited for.)
func TestInvariantEmbeddersCodeIsContained(t *testing.T) {
	released := make(chan struct{})
	panics := func() { panic("test") }
	for name, tc := range map[string]struct{ asked, written func() }{
		"panics": {panics, panics},
		"Goexit": {runtime.Goexit, runtime.Goexit},
		"blocks": {func() { <-released }, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released = make(chan struct{})
				defer close(released)
				ill := illBehaved{plegtest.New(), tc.asked, tc.written}
				p := kit.New(t, pipeline.Options{Runtime: ill, Store: ill})
				events := p.Events(t, 0)
				ill.Runtime.Set("hung", "c=running")
				ill.SetPodFault("hung", plegtest.Hang)
				p.Start(t)
				kit.Relist(3)
				ill.Runtime.Set("fine", "c=running")
				kit.Relist(5) // the hung inspection is logged, with the runtime's calls
				kit.RequireEvents(t, events, "fine", "Started(c)")
				began := time.Now()
				p.Status()
				if healthy, _ := p.Healthy(); !healthy {
					t.Error("not healthy")
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("Status and Healthy took %v", took)
				}
				ill.Remove("fine")
				kit.Relist(2)
				kit.RequireEvents(t, events, "fine", "Died(c) Removed(c)")
			})
		})
	}
}
