package differ_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// FuzzEvents applies the events between any two pods to the old states. The result
// is the new states, and the events have the kubelet's order.
func FuzzEvents(f *testing.F) {
	f.Fuzz(func(t *testing.T, oldBytes, curBytes []byte) {
		old, cur := fuzzedPod(oldBytes), fuzzedPod(curBytes)
		events := differ.Events(old, cur, at(1))
		states := statesOf(old)
		for _, ev := range events {
			before, listed := states[ev.ContainerID]
			switch ev.Type {
			case pleg.ContainerStarted:
				states[ev.ContainerID] = "running"
			case pleg.ContainerDied:
				states[ev.ContainerID] = "exited"
			case stage.ContainerChanged, pleg.ContainerCreated:
				states[ev.ContainerID] = "changed"
			case pleg.ContainerRemoved:
				if !listed || before != "exited" {
					t.Errorf("%s removed from state %q", ev.ContainerID, before)
				}
				delete(states, ev.ContainerID)
			default:
				t.Errorf("event of type %s", ev.Type)
			}
			if ev.PodUID != "a" || !ev.ObservedAt.Equal(at(1)) || ev.ContainerName != "of-"+string(ev.ContainerID) {
				t.Errorf("event %+v has a wrong pod, time or name", ev)
			}
		}
		if want := statesOf(cur); fmt.Sprint(states) != fmt.Sprint(want) {
			t.Errorf("%s makes %v, want %v", plegtest.Words(events...), states, want)
		}
		if order := orderOfIDs(old, cur); !slices.IsSortedFunc(events, func(x, y pleg.Event) int {
			return order[x.ContainerID] - order[y.ContainerID]
		}) {
			t.Errorf("order of %s, want that of %v", plegtest.Words(events...), order)
		}
	})
}

// fuzzedPod returns a pod with one container for each byte, which encodes the id,
// the state and whether it is a sandbox. If the first byte is 0xff, it returns nil.
func fuzzedPod(bytes []byte) *pleg.Pod {
	if len(bytes) > 0 && bytes[0] == 0xff {
		return nil
	}
	p := plegtest.Pod("a", "")
	for _, b := range bytes[:min(len(bytes), 64)] {
		id := pleg.ContainerID(fmt.Sprint(b & 0x0f))
		c := &pleg.Container{ID: id, Name: "of-" + string(id), State: pleg.State(b >> 4 & 0x03)}
		if b&0x40 != 0 {
			p.Sandboxes = append(p.Sandboxes, c)
		} else {
			p.Containers = append(p.Containers, c)
		}
	}
	return p
}

func containersOf(p *pleg.Pod) []*pleg.Container {
	if p == nil {
		return nil
	}
	return slices.Concat(p.Containers, p.Sandboxes)
}

// statesOf maps the ids of a pod to the states that events distinguish. The first
// of two containers with one id counts.
func statesOf(p *pleg.Pod) map[pleg.ContainerID]string {
	states := make(map[pleg.ContainerID]string)
	for _, c := range containersOf(p) {
		if _, ok := states[c.ID]; ok {
			continue
		}
		switch c.State {
		case pleg.StateRunning, pleg.StateExited:
			states[c.ID] = c.State.String()
		default:
			states[c.ID] = "changed"
		}
	}
	return states
}

// orderOfIDs maps each id to its position in the kubelet's order of events.
func orderOfIDs(old, cur *pleg.Pod) map[pleg.ContainerID]int {
	places := make(map[pleg.ContainerID]int)
	for _, c := range slices.Concat(containersOf(old), containersOf(cur)) {
		if _, ok := places[c.ID]; !ok {
			places[c.ID] = len(places)
		}
	}
	return places
}
