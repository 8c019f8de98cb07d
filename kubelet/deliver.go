package kubelet

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// minBuffer is the minimum buffer of the subscription. It need not be large, because
// delivery never waits.
const minBuffer = 1000

// delivery sends events to the kubelet's channel. Like GenericPLEG it never waits for
// the kubelet: if the channel is full, it discards and counts the event. Unlike
// GenericPLEG it sends one PodSync for each pod with discarded events as soon as there
// is room.
type delivery struct {
	from *pipeline.Subscription
	to   chan *kubepleg.PodLifecycleEvent
	// discarded are the pods that need a PodSync.
	discarded []types.UID
}

// run sends events until the pipeline ends.
func (d *delivery) run(log klog.Logger) {
	for {
		var out chan<- *kubepleg.PodLifecycleEvent
		var next *kubepleg.PodLifecycleEvent
		if len(d.discarded) > 0 {
			out, next = d.to, &kubepleg.PodLifecycleEvent{ID: d.discarded[0], Type: kubepleg.PodSync}
		}
		select {
		case ev, ok := <-d.from.Events():
			if !ok {
				return
			}
			d.send(ev, log)
		case out <- next:
			d.discarded = d.discarded[1:]
		}
	}
}

// send sends an event, or discards it and notes its pod.
func (d *delivery) send(ev pleg.Event, log klog.Logger) {
	out := eventOf(ev)
	if ev.Missed > 0 {
		// The subscription discarded these events before this loop.
		metrics.PLEGDiscardEvents.Add(float64(ev.Missed))
	}
	if ev.PodUID == "" {
		return // a mark: the kubelet does not know them
	}
	if ev.Type == pleg.ContainerDied && ev.ExitCode != nil {
		log.V(2).Info("Generic (PLEG): container finished", "podID", out.ID, "containerID", out.Data, "exitCode", *ev.ExitCode)
	}
	select {
	case d.to <- out:
		return
	default:
	}
	if ev.Missed == 0 {
		metrics.PLEGDiscardEvents.Inc()
	}
	if len(d.discarded) == 0 {
		log.Error(nil, "Event channel is full, discarding events", "recovery", "one PodSync for each pod once there is room")
	}
	if !slices.Contains(d.discarded, out.ID) {
		d.discarded = append(d.discarded, out.ID)
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
