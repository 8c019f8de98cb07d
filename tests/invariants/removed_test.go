package pipeline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Who comes a moment late still learns how a container ended.
func TestRemovedContainerCanBeHadForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{KeepRemoved: 10 * time.Second, Store: &recorder{}})
		sub := r.subscribe(t, 0)
		r.node.set("a", "c=exited d=running")
		r.node.set("b", "e=exited")
		r.run(t)
		if got := r.Cache().GetRemoved("c"); got != nil {
			t.Errorf("GetRemoved of a container that is there = %+v, want nil", got)
		}
		r.node.set("a", "d=running")
		r.node.remove("b")
		r.relist()
		requireTold(t, sub, "a", "Died(c) Started(d) Removed(c)", "b", "Died(e) Removed(e)")
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
