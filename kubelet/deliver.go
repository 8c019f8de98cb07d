package kubelet

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// delivery sends events to the kubelet's channel. Like GenericPLEG it never waits for
// the kubelet: if the channel is full, it discards and counts the event. Unlike
// GenericPLEG it sends one PodSync for each pod with discarded events as soon as there
// is room.
type delivery struct {
	from *pipeline.Subscription
	to   chan<- *kubepleg.PodLifecycleEvent
	log  klog.Logger
	// flushes gets a channel that is closed once nothing waits in from.
	flushes chan chan<- struct{}
	// discarded are the pods that need a PodSync.
	discarded []types.UID
}

func newDelivery(from *pipeline.Subscription, to chan<- *kubepleg.PodLifecycleEvent, discarded []types.UID, log klog.Logger) *delivery {
	return &delivery{from: from, to: to, log: log, discarded: discarded, flushes: make(chan chan<- struct{})}
}

// run sends events until the pipeline ends.
func (d *delivery) run() {
	events := d.from.Events()
	for {
		var out chan<- *kubepleg.PodLifecycleEvent
		var next *kubepleg.PodLifecycleEvent
		if len(d.discarded) > 0 {
			out, next = d.to, &kubepleg.PodLifecycleEvent{ID: d.discarded[0], Type: kubepleg.PodSync}
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			d.send(ev)
		case out <- next:
			d.discarded = d.discarded[1:]
		case done := <-d.flushes:
			for len(events) > 0 {
				d.send(<-events)
			}
			close(done)
		}
	}
}

// flush waits until the events published so far have been sent, or until ctx or the
// run ends.
func (d *delivery) flush(ctx context.Context, ended <-chan struct{}) {
	done := make(chan struct{})
	select {
	case d.flushes <- done:
	case <-ended:
		return
	case <-ctx.Done():
		return
	}
	<-done
}

// send sends an event, or discards it and notes its pod.
func (d *delivery) send(ev pleg.Event) {
	out := eventOf(ev)
	if ev.Missed > 0 {
		// The subscription discarded these events before this loop.
		metrics.PLEGDiscardEvents.Add(float64(ev.Missed))
	}
	if ev.PodUID == "" {
		return // a mark: the kubelet does not know them
	}
	if ev.Type == pleg.ContainerDied && ev.ExitCode != nil {
		d.log.V(2).Info("Generic (PLEG): container finished", "podID", out.ID, "containerID", out.Data, "exitCode", *ev.ExitCode)
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
		d.log.Error(nil, "Event channel is full, discarding events", "recovery", "one PodSync for each pod once there is room")
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
