package differ

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// FuzzEvents requires between any two pods the events of the serial reference, in its order.
func FuzzEvents(f *testing.F) {
	const sandbox = 0x40
	for _, states := range [][2]byte{{}, {0x10}, {0x20}, {0x30}, {0x10, 0x20}, {0x20, 0x10}, {0x30, 0x20}} {
		was, is := []byte{states[0] | 1, states[0] | 2 | sandbox}, []byte{states[1] | 3, states[1] | 2 | sandbox, states[1] | 1}
		f.Add(was, is)
		f.Add(is, was)
		f.Add([]byte{0xff}, is)
		f.Add(is, []byte{0xff})
	}
	f.Add([]byte{0x25}, []byte{0xf5})
	f.Fuzz(func(t *testing.T, oldBytes, curBytes []byte) {
		old, cur := fuzzedPod(oldBytes), fuzzedPod(curBytes)
		want := serial.Events(old, cur)
		same := func(got, want pleg.Event) bool {
			if got.Type == pleg.ContainerCreated {
				got.Type = stage.ContainerChanged // the reference has no name for it
			}
			want.ObservedAt, want.Sandbox = time.Unix(1, 0), got.Sandbox // an id may be one, then the other
			return got == want
		}
		got := slices.DeleteFunc(events(old, cur, nil, time.Unix(1, 0)), func(ev pleg.Event) bool { return ev.Type == stage.ContainerRan })
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// fuzzedPod returns a pod with one container for each byte, which encodes the id,
// the state and whether it is a sandbox. If the first byte is 0xff, it returns nil. It has no id
// twice, as the border leaves the second one out.
func fuzzedPod(bytes []byte) *pleg.Pod {
	if len(bytes) > 0 && bytes[0] == 0xff {
		return nil
	}
	p := plegtest.Pod("a", "")
	for _, b := range bytes[:min(len(bytes), 64)] {
		id := pleg.ContainerID(fmt.Sprint(b & 0x0f))
		if hasContainer(p, id) {
			continue
		}
		c := &pleg.Container{ID: id, Name: "of-" + string(id), Attempt: uint32(b & 0x0f), State: pleg.State(b >> 4 & 0x03)}
		if b&0x40 != 0 {
			p.Sandboxes = append(p.Sandboxes, c)
		} else {
			p.Containers = append(p.Containers, c)
		}
	}
	return p
}

// A container that was reported as started, or may have been, is not reported again as it exits.
func TestStartIsInferredOnce(t *testing.T) {
	for before, inferred := range map[string]bool{"/s=running": true, "a=created": true, "a=running": false, "a=unknown": false} {
		all := events(plegtest.Pod("a", before), plegtest.Pod("a", "a=exited"), nil, time.Unix(1, 0))
		if got := slices.ContainsFunc(all, func(ev pleg.Event) bool { return ev.Type == stage.ContainerRan }); got != inferred {
			t.Errorf("%s, then a=exited: a start is inferred: %v, want %v", before, got, inferred)
		}
	}
}

// Only a container that is first seen created is reported as created.
func TestCreated(t *testing.T) {
	for change, created := range map[[2]string]bool{
		{"/s=running", "a=created"}: true, {"/s=running", "a=unknown"}: false, {"a=exited", "a=created"}: false,
	} {
		all := events(plegtest.Pod("a", change[0]), plegtest.Pod("a", change[1]), nil, time.Unix(1, 0))
		if got := slices.ContainsFunc(all, func(ev pleg.Event) bool { return ev.Type == pleg.ContainerCreated }); got != created {
			t.Errorf("%s, then %s: reported as created: %v, want %v", change[0], change[1], got, created)
		}
	}
}
