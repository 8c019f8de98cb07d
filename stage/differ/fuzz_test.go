package differ_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// FuzzEvents applies the events between any two pods to the states of the old
// one: that gives the states of the new one, in the kubelet's order.
func FuzzEvents(f *testing.F) {
	f.Fuzz(func(t *testing.T, oldBytes, curBytes []byte) {
		old, cur := fuzzedPod(oldBytes), fuzzedPod(curBytes)
		events := differ.Events(old, cur, at(1))
		states := coarse(old)
		for _, ev := range events {
			before, listed := states[ev.ContainerID]
			switch ev.Type {
			case pleg.ContainerStarted:
				states[ev.ContainerID] = "running"
			case pleg.ContainerDied:
				states[ev.ContainerID] = "exited"
			case pleg.ContainerChanged:
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
				t.Errorf("event %+v does not say what it is about", ev)
			}
		}
		if want := coarse(cur); fmt.Sprint(states) != fmt.Sprint(want) {
			t.Errorf("%s makes %v, want %v", plegtest.Words(events...), states, want)
		}
		if order := placesOf(old, cur); !slices.IsSortedFunc(events, func(x, y pleg.Event) int {
			return order[x.ContainerID] - order[y.ContainerID]
		}) {
			t.Errorf("order of %s, want that of %v", plegtest.Words(events...), order)
		}
	})
}

// fuzzedPod makes a container of each byte: its id, its state and whether it is
// a sandbox. A first byte of 0xff is a pod that is gone.
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

func all(p *pleg.Pod) []*pleg.Container {
	if p == nil {
		return nil
	}
	return slices.Concat(p.Containers, p.Sandboxes)
}

// coarse maps the ids of a pod to their states as far as events go; of an id
// listed twice the first counts.
func coarse(p *pleg.Pod) map[pleg.ContainerID]string {
	states := make(map[pleg.ContainerID]string)
	for _, c := range all(p) {
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

// placesOf maps each id to its place in the kubelet's walk.
func placesOf(old, cur *pleg.Pod) map[pleg.ContainerID]int {
	places := make(map[pleg.ContainerID]int)
	for _, c := range slices.Concat(all(old), all(cur)) {
		if _, ok := places[c.ID]; !ok {
			places[c.ID] = len(places)
		}
	}
	return places
}
