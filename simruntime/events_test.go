package simruntime_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// lifeOfAPod are the events of a pod: s is the sandbox, c the container.
var lifeOfAPod = []string{
	"s CREATED", "s STARTED", "c CREATED", "c STARTED",
	"c STOPPED", "s STOPPED", "c DELETED", "s DELETED",
}

func TestEachClientGetsAllEventsOfPod(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		var seen [2][]string
		leaving, leave := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{leaving, t.Context()} {
			stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
			kit.Must(t, err)
			go func() {
				last := int64(0)
				for ev, err := stream.Recv(); err == nil; ev, err = stream.Recv() {
					if ev.CreatedAt <= last {
						t.Errorf("an event at %d follows one at %d: clients sort by time", ev.CreatedAt, last)
					}
					last = ev.CreatedAt
					what, kind := "c ", strings.Split(ev.ContainerEventType.String(), "_")[1]
					if ev.ContainerId == ev.GetPodSandboxStatus().GetId() {
						what = "s "
					}
					if sandbox := ev.GetPodSandboxStatus(); (sandbox.GetCreatedAt() < 0) != (what+kind == "s DELETED") {
						t.Errorf("%s%s has the sandbox %v, want the time of its creation in all events but the last", what, kind, sandbox)
					}
					seen[i] = append(seen[i], what+kind)
				}
			}()
		}
		synctest.Wait()
		p := rt.AddPod(simruntime.PodSpec{Containers: []pleg.ContainerStatus{{}}})
		kit.Must(t, rt.RemovePod(p.UID))
		synctest.Wait()
		for _, got := range seen {
			if !slices.Equal(got, lifeOfAPod) {
				t.Errorf("got %q, want %q", got, lifeOfAPod)
			}
		}
		if s := rt.Stats(); s.DroppedEvents != 0 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
		leave()
		synctest.Wait()
		if got := rt.BreakEvents(); got != 1 {
			t.Errorf("%d clients after one left", got)
		}
		leaving, leave = context.WithCancel(t.Context())
		_, err := client.GetContainerEvents(leaving, &cri.GetEventsRequest{})
		kit.Must(t, err)
		synctest.Wait()
		leave()
		synctest.Wait()
		rt.AddPod(simruntime.PodSpec{})
		if s := rt.Stats(); s.DroppedEvents != 2 {
			t.Errorf("%d events are dropped after the last client left, want 2", s.DroppedEvents)
		}
	})
}
