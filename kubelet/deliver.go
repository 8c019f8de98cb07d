package kubelet

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/pleg"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

// deliver sends the events to the kubelet's channel until the pipeline ends. Like
// GenericPLEG it never waits for the kubelet: if the channel is full, it discards
// and counts the event. Unlike GenericPLEG it sends one PodSync for each pod with
// discarded events as soon as there is room.
func (p *PLEG) deliver() {
	var discarded []types.UID // pods that need a PodSync
	events := p.deliveries.Events()
	for {
		var out chan<- *pleg.PodLifecycleEvent
		var next *pleg.PodLifecycleEvent
		if len(discarded) > 0 {
			out, next = p.events, &pleg.PodLifecycleEvent{ID: discarded[0], Type: pleg.PodSync}
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			discarded = p.send(ev, discarded)
		case out <- next:
			discarded = discarded[1:]
		}
	}
}

// send sends an event, or discards it and adds its pod to discarded.
func (p *PLEG) send(ev pipeline.Event, discarded []types.UID) []types.UID {
	out := eventOf(ev)
	if ev.Missed > 0 {
		// The subscription discarded these events before this loop.
		metrics.PLEGDiscardEvents.Add(float64(ev.Missed))
	}
	if ev.Type == pipeline.ContainerDied && ev.ExitCode != nil {
		p.logger.V(2).Info("Generic (PLEG): container finished", "podID", out.ID, "containerID", out.Data, "exitCode", *ev.ExitCode)
	}
	select {
	case p.events <- out:
		return discarded
	default:
	}
	if ev.Missed == 0 {
		metrics.PLEGDiscardEvents.Inc()
	}
	if len(discarded) == 0 {
		p.logger.Error(nil, "Event channel is full, discarding events", "recovery", "one PodSync for each pod once there is room")
	}
	if !slices.Contains(discarded, out.ID) {
		discarded = append(discarded, out.ID)
	}
	return discarded
}

// eventOf converts an event. Data is the id of the container or sandbox, and nil for
// a PodSync.
func eventOf(ev pipeline.Event) *pleg.PodLifecycleEvent {
	out := &pleg.PodLifecycleEvent{ID: types.UID(ev.PodUID), Type: pleg.PodLifeCycleEventType(ev.Type)}
	if ev.Type != pipeline.PodSync {
		out.Data = string(ev.ContainerID)
	}
	return out
}
