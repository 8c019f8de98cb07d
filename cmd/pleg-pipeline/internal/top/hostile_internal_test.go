package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A daemon whose events name ever new pods, or whose names are long, fills no memory.
func TestEventsOfAnyDaemonAreBounded(t *testing.T) {
	m, now := newModel(""), time.Now()
	long := strings.Repeat("n", 1<<20)
	for i := range 3 * maxPods {
		m.addEvent(Event{Event: pleg.Event{Type: pleg.ContainerStarted, PodUID: pleg.PodUID(fmt.Sprint(i)), PodName: long, Reason: long, ContainerName: long}}, now)
	}
	for range 2 * maxRecent {
		m.addEvent(Event{Event: pleg.Event{Type: pleg.ContainerDied, PodUID: "a"}}, now)
	}
	if len(m.pods) > maxPods || len(m.feed) > 2*maxFeed {
		t.Errorf("%d pods and %d events are kept", len(m.pods), len(m.feed))
	}
	events := 0
	for _, p := range m.pods {
		events += len(p.events)
		if len(p.recent) > maxRecent || len(p.last.PodName) > maxName || len(p.Name) > maxName {
			t.Fatalf("pod %s has %d events in a minute and a name of %d bytes", p.UID, len(p.recent), len(p.Name))
		}
	}
	if most := maxPods + maxDetailed*maxPodEvents; events > most {
		t.Errorf("%d events of pods are kept, want at most %d", events, most)
	}
}
