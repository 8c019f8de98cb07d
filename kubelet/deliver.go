package kubelet

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/pleg"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

// deliver passes the events on to the kubelet's channel until the pipeline ends.
// Like GenericPLEG it never waits for the kubelet: what does not fit is
// discarded and counted. Each pod that lost something gets one PodSync as soon
// as there is room, where GenericPLEG leaves it to the next event of the pod.
func (p *PLEG) deliver() {
	var owed []types.UID
	events := p.deliveries.Events()
	for {
		var out chan<- *pleg.PodLifecycleEvent
		var next *pleg.PodLifecycleEvent
		if len(owed) > 0 {
			out, next = p.events, &pleg.PodLifecycleEvent{ID: owed[0], Type: pleg.PodSync}
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			owed = p.pass(ev, owed)
		case out <- next:
			owed = owed[1:]
		}
	}
}

// pass sends one event, or adds its pod to those that are owed a PodSync.
func (p *PLEG) pass(ev pipeline.Event, owed []types.UID) []types.UID {
	out := eventOf(ev)
	if ev.Missed > 0 {
		// It stands for events that did not even reach this loop.
		metrics.PLEGDiscardEvents.Add(float64(ev.Missed))
	}
	if ev.Type == pipeline.ContainerDied && ev.ExitCode != nil {
		p.logger.V(2).Info("Generic (PLEG): container finished", "podID", out.ID, "containerID", out.Data, "exitCode", *ev.ExitCode)
	}
	select {
	case p.events <- out:
		return owed
	default:
	}
	if ev.Missed == 0 {
		metrics.PLEGDiscardEvents.Inc()
	}
	if len(owed) == 0 {
		p.logger.Error(nil, "Event channel is full: events are discarded, each pod gets a PodSync once there is room")
	}
	if !slices.Contains(owed, out.ID) {
		owed = append(owed, out.ID)
	}
	return owed
}

// eventOf returns the event in the kubelet's words. Its datum is the id of the
// container or sandbox, and nil for a PodSync.
func eventOf(ev pipeline.Event) *pleg.PodLifecycleEvent {
	out := &pleg.PodLifecycleEvent{ID: types.UID(ev.PodUID), Type: pleg.PodLifeCycleEventType(ev.Type)}
	if ev.Type != pipeline.PodSync {
		out.Data = string(ev.ContainerID)
	}
	return out
}
