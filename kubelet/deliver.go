package kubelet

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// delivery passes events to the kubelet's channel. Unlike GenericPLEG it waits for the kubelet.
// That delays only this goroutine: the waiting events stay in the log of the pipeline. If the log
// no longer contains them, the present state of all pods follows, so that the kubelet syncs them.
type delivery struct {
	from pleg.Subscription
	to   chan *kubepleg.PodLifecycleEvent
}

// run sends events until ctx or the pipeline ends.
func (d *delivery) run(ctx context.Context, log klog.Logger) {
	for ev, err := range d.from.All(ctx) {
		switch {
		case err != nil:
			return
		case ev.Type == pleg.Gap:
			metrics.PLEGDiscardEvents.Add(float64(ev.Missed))
			log.Error(nil, "Event channel was not read, discarding events", "events", ev.Missed, "recovery", "the present state of all pods")
		}
		if ev.PodUID == "" {
			continue // a mark: the kubelet does not know them
		}
		out := eventOf(ev)
		if ev.Type == pleg.ContainerDied && ev.ExitCode != nil {
			log.V(2).Info("Generic (PLEG): container finished", "podID", out.ID, "containerID", out.Data, "exitCode", *ev.ExitCode)
		}
		select {
		case d.to <- out:
		case <-ctx.Done():
			return
		}
	}
}

// eventOf converts an event. Data is the id of the container or sandbox, and nil for
// a PodSync.
func eventOf(ev pleg.Event) *kubepleg.PodLifecycleEvent {
	out := &kubepleg.PodLifecycleEvent{ID: types.UID(ev.PodUID), Type: kubepleg.PodLifeCycleEventType(ev.Type)}
	if ev.Type != pleg.PodSync {
		out.Data = string(ev.ContainerID)
	}
	return out
}
