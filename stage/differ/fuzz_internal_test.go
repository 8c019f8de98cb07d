package differ

import (
	"fmt"
	"slices"
	"strings"
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
				got.Type = stage.ContainerChanged // the reference cannot name it
			}
			want.ObservedAt, want.Sandbox = time.Unix(1, 0), got.Sandbox // an id may be a container, then a sandbox
			return got == want
		}
		got := events(old, cur, nil, &lives{}, time.Unix(1, 0))
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// fuzzedPod returns a pod with one container for each byte, which encodes the id,
// the state and whether it is a sandbox. If the first byte is 0xff, it returns nil. It contains no
// id twice, because the border leaves the second one out.
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

// A step of a container that was reported is not reported again, and one that was not is reported,
// however lists showed the container in between.
func TestEachStepIsReportedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		reported    kind
		before, now string
		want        string
	}{
		"first seen exited":                 {absent, "/s=running", "a=exited /s=running", "Ran(a) Died(a)"},
		"created, then exited":              {absent, "a=created", "a=exited", "Ran(a) Died(a)"},
		"created, then gone":                {absent, "a=created /s=running", "/s=running", "Ran(a) Died(a) Removed(a)"},
		"first seen unknown, then exited":   {absent, "a=unknown", "a=exited", "Ran(a) Died(a)"},
		"running, then exited":              {running, "a=running", "a=exited", "Died(a)"},
		"running, unknown, exited":          {running, "a=unknown", "a=exited", "Died(a)"},
		"running, unknown, running":         {running, "a=unknown", "a=running", "Changed(a)"},
		"running, unknown, gone":            {running, "a=unknown /s=running", "/s=running", "Died(a) Removed(a)"},
		"exited, unknown, exited":           {exited, "a=unknown", "a=exited", "Changed(a)"},
		"exited, unknown, gone":             {exited, "a=unknown /s=running", "/s=running", "Removed(a)"},
		"exited, then running again":        {exited, "a=exited", "a=running", "Changed(a)"},
		"not listed, then there again":      {running, "/s=running", "a=running /s=running", "Changed(a)"},
		"a sandbox that is first seen dead": {absent, "a=running", "a=running /s=exited", "Died(/s)"},
	} {
		l := &lives{told: make(map[one]kind)}
		l.told[one{"p", "a"}] = tc.reported
		l.told[one{"p", "s"}] = map[bool]kind{true: running}[strings.Contains(tc.before, "/s")]
		if got := plegtest.Words(events(plegtest.Pod("p", tc.before), plegtest.Pod("p", tc.now), nil, l, time.Unix(1, 0))...); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Only a container that is first seen created is reported as created.
func TestCreated(t *testing.T) {
	for change, created := range map[[2]string]bool{
		{"/s=running", "a=created"}: true, {"/s=running", "a=unknown"}: false, {"a=exited", "a=created"}: false,
	} {
		all := events(plegtest.Pod("a", change[0]), plegtest.Pod("a", change[1]), nil, &lives{}, time.Unix(1, 0))
		if got := slices.ContainsFunc(all, func(ev pleg.Event) bool { return ev.Type == pleg.ContainerCreated }); got != created {
			t.Errorf("%s, then %s: reported as created: %v, want %v", change[0], change[1], got, created)
		}
	}
}
