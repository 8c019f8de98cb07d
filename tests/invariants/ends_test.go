package invariants_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// An inspection that has reached its deadline has failed, also if a request comes before its call returns.
func TestRequestAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kit.New(t, pipeline.Options{InspectTimeout: 5 * time.Second})
		p.Runtime.Set("p", "a=running")
		p.Runtime.SetPodFault("p", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second / 2)
			return ctx.Err()
		})
		p.Start(t)
		time.Sleep(5*time.Second + time.Second/4)
		p.RequestRelist("p")
		time.Sleep(time.Second / 2)
		synctest.Wait()
		_, err := p.Cache().Get("p")
		requireText(t, err, "inspect timeout of 5s")
	})
}

// CRI-O announces the start of a sandbox and never its removal: a pod that has ended is listed again until it
// is gone.
func TestEndThatIsNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		p := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsAuto})
		p.StartBetweenLists(t)
		time.Sleep(11 * time.Second) // lists of all are rare now
		runtime.Set("a", "c=running /s=running")
		runtime.AnnounceHint(pleg.Hint{UID: "a", Container: "s", Sandbox: "s", Name: "a", State: pleg.StateRunning})
		time.Sleep(time.Second)
		runtime.Set("a", "c=exited /s=exited")
		runtime.Announce("a", "c")
		time.Sleep(time.Second)
		runtime.Remove("a")
		time.Sleep(2 * time.Second)
		if left := p.Cache().List(); len(left) > 0 {
			t.Errorf("2 s later the cache contains %+v, want that the pod is gone", left)
		}
	})
}
