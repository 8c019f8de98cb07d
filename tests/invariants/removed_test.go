package invariants_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The final status of a removed container is available for KeepRemoved.
func TestRemovedContainerIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{KeepRemoved: 10 * time.Second, Store: &recorder{}})
		sub := r.Events(t, 0)
		r.Runtime.Set("a", "c=exited d=running")
		r.Runtime.Set("b", "e=exited")
		r.Start(t)
		synctest.Wait()
		if got := r.Cache().GetRemoved("c"); got != nil {
			t.Errorf("GetRemoved of a listed container = %+v, want nil", got)
		}
		r.Runtime.Set("a", "d=running")
		r.Runtime.Remove("b")
		kit.Relist(1)
		kit.RequireEvents(t, sub, "a", "Died(c) Started(d) Removed(c)", "b", "Died(e) Removed(e)")
		for _, id := range []string{"c", "e"} {
			if got := r.Cache().GetRemoved(pleg.ContainerID(id)); got == nil || got.ExitCode != 3 || got.Reason != "Error" {
				t.Errorf("GetRemoved(%s) = %+v, want its final status", id, got)
			}
		}
		if got := r.Cache().GetRemoved("d"); got != nil {
			t.Errorf("GetRemoved of a running container = %+v, want nil", got)
		}
		time.Sleep(10*time.Second + 1)
		if got := r.Cache().GetRemoved("c"); got != nil {
			t.Errorf("GetRemoved after Options.KeepRemoved = %+v, want nil", got)
		}
	})
}
