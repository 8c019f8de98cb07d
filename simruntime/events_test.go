package simruntime_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// watcher is a client of GetContainerEvents that keeps its events.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	events []*cri.ContainerEventResponse
}

func watch(t *testing.T, client cri.RuntimeServiceClient) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		stream, err := client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		for err == nil {
			var ev *cri.ContainerEventResponse
			if ev, err = stream.Recv(); err == nil {
				w.mu.Lock()
				w.events = append(w.events, ev)
				w.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
	})
	synctest.Wait()
	return w
}

var short = map[cri.ContainerEventType]string{
	cri.ContainerEventType_CONTAINER_CREATED_EVENT: "created",
	cri.ContainerEventType_CONTAINER_STARTED_EVENT: "started",
	cri.ContainerEventType_CONTAINER_STOPPED_EVENT: "stopped",
	cri.ContainerEventType_CONTAINER_DELETED_EVENT: "deleted",
}

// seen returns the events so far as "what kind", what being s for a sandbox.
func (w *watcher) seen() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, ev := range w.events {
		what := "c"
		if ev.ContainerId == ev.GetPodSandboxStatus().GetId() {
			what = "s"
		}
		out = append(out, what+" "+short[ev.ContainerEventType])
	}
	return out
}

var lifeOfAPod = []string{
	"s created", "s started", "c created", "c started",
	"c stopped", "s stopped", "c deleted", "s deleted",
}

func addAndRemove(t *testing.T, rt *simruntime.Runtime) {
	t.Helper()
	p := rt.AddPod(simruntime.PodSpec{Containers: []pleg.ContainerStatus{{}}})
	kit.Must(t, rt.RemovePod(p.UID))
}

func TestEachClientGetsAllEventsOfPod(t *testing.T) {
	simulate(t, simruntime.Options{}, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		a, b := watch(t, client), watch(t, client)
		addAndRemove(t, rt)
		for _, w := range []*watcher{a, b} {
			if got := w.seen(); !slices.Equal(got, lifeOfAPod) {
				t.Errorf("got %q, want %q", got, lifeOfAPod)
			}
		}
		if s := rt.Stats(); s.DroppedEvents != 0 || s.InFlight != 0 {
			t.Errorf("stats %+v", s)
		}
		a.cancel()
		synctest.Wait()
		if got := rt.BreakEvents(); got != 1 {
			t.Errorf("%d clients after one left", got)
		}
	})
}
