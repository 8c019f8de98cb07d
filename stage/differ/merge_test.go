package differ_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// stateWords writes a pod as plegtest.Pod reads it.
func stateWords(p *pleg.Pod) string {
	if p == nil {
		return "absent"
	}
	var words []string
	for _, c := range p.Containers {
		words = append(words, fmt.Sprintf("%s=%v", c.ID, c.State))
	}
	for _, c := range p.Sandboxes {
		words = append(words, fmt.Sprintf("/%s=%v", c.ID, c.State))
	}
	return strings.Join(words, " ")
}

func TestMerge(t *testing.T) {
	for name, tc := range map[string]struct{ have, event, removed, want string }{
		"nothing known":             {"absent", "c=running /s=running", "", "c=running /s=running"},
		"nothing known, none left":  {"absent", "", "", "absent"},
		"forward":                   {"c=created /s=running", "c=exited /s=exited", "", "c=exited /s=exited"},
		"never back":                {"c=exited /s=exited", "c=running /s=running", "", "c=exited /s=exited"},
		"unknown is behind all":     {"c=created", "c=unknown", "", "c=created"},
		"a new container":           {"c=exited /s=running", "d=running /s=running", "", "c=exited d=running /s=running"},
		"another sandbox stays":     {"c=exited /s=exited", "d=running /t=running", "", "c=exited d=running /s=exited /t=running"},
		"removed by an event":       {"c=exited d=running", "d=running", "c", "d=running"},
		"removed, the event has it": {"d=running", "c=exited d=running", "c", "d=running"},
		"the last one removed":      {"/s=exited", "", "s", "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			var have *pleg.Pod
			if tc.have != "absent" {
				have = plegtest.Pod("a", tc.have)
			}
			before := stateWords(have)
			removed := func(id pleg.ContainerID) bool { return slices.Contains(strings.Fields(tc.removed), string(id)) }
			got := differ.Merge(have, &pleg.Hint{UID: "a", Pod: plegtest.Pod("a", tc.event)}, removed)
			if stateWords(got) != tc.want {
				t.Errorf("merged = %s, want %s", stateWords(got), tc.want)
			}
			if stateWords(have) != before {
				t.Errorf("what was known became %s, want %s: it is read-only", stateWords(have), before)
			}
		})
	}
}

func TestMergeListsTheNewestFirst(t *testing.T) {
	have, event := plegtest.Pod("a", "c=exited b=exited"), plegtest.Pod("a", "d=running c=exited")
	for id, p := range map[pleg.ContainerID]*pleg.Pod{"b": have, "c": have, "d": event} {
		p.Containers[slices.IndexFunc(p.Containers, func(c *pleg.Container) bool { return c.ID == id })].CreatedAt = at(int(id[0]))
	}
	event.Containers[1].CreatedAt = at('c')
	got := differ.Merge(have, &pleg.Hint{UID: "a", Pod: event}, func(pleg.ContainerID) bool { return false })
	if want := "d=running c=exited b=exited"; stateWords(got) != want {
		t.Errorf("merged = %s, want %s", stateWords(got), want)
	}
}

// The event of a removed sandbox does not know what the pod is called.
func TestMergeKeepsTheNameOfAPodWithoutASandbox(t *testing.T) {
	have := plegtest.Pod("a", "c=exited /s=exited")
	have.Labels = map[string]string{"app": "web"}
	event := &pleg.Pod{UID: "a"}
	got := differ.Merge(have, &pleg.Hint{UID: "a", Pod: event}, func(id pleg.ContainerID) bool { return id == "s" })
	if got.Name != have.Name || got.Namespace != have.Namespace || got.Labels["app"] != "web" {
		t.Errorf("merged = %+v, want the name and the labels of %+v", got, have)
	}
}

// FuzzMerge merges any event into any pod: every container of either is in the
// result, once, at the farther of its states, unless it was removed; and to hear
// the event again changes nothing.
func FuzzMerge(f *testing.F) {
	f.Fuzz(func(t *testing.T, haveBytes, eventBytes []byte, removedBits uint16) {
		have, event := uniquePod(haveBytes), uniquePod(eventBytes)
		if event == nil {
			event = plegtest.Pod("a", "")
		}
		removed := func(id pleg.ContainerID) bool {
			var n int
			_, _ = fmt.Sscan(string(id), &n)
			return removedBits>>n&1 == 1
		}
		want := make(map[pleg.ContainerID]pleg.State)
		for _, c := range slices.Concat(all(have), all(event)) {
			if !removed(c.ID) {
				want[c.ID] = max(want[c.ID], c.State)
			}
		}
		hint := &pleg.Hint{UID: "a", Pod: event}
		got := differ.Merge(have, hint, removed)
		states := make(map[pleg.ContainerID]pleg.State)
		for _, c := range all(got) {
			if _, twice := states[c.ID]; twice {
				t.Errorf("%s is there twice", c.ID)
			}
			states[c.ID] = c.State
		}
		if fmt.Sprint(states) != fmt.Sprint(want) || (got == nil) != (len(want) == 0) {
			t.Errorf("merged = %v, want %v", states, want)
		}
		if got == nil {
			return
		}
		for _, list := range [][]*pleg.Container{got.Containers, got.Sandboxes} {
			if !slices.IsSortedFunc(list, func(a, b *pleg.Container) int { return b.CreatedAt.Compare(a.CreatedAt) }) {
				t.Errorf("%s is not in the order of creation", stateWords(got))
			}
		}
		if again := differ.Merge(got, hint, removed); len(differ.Events(got, again, at(1))) > 0 {
			t.Errorf("%s, and after the same event %s", stateWords(got), stateWords(again))
		}
	})
}

// uniquePod is fuzzedPod without an id listed twice: those below 8 are
// containers, the others sandboxes, each with a time of its own.
func uniquePod(bytes []byte) *pleg.Pod {
	p := fuzzedPod(bytes)
	if p == nil {
		return nil
	}
	unique := plegtest.Pod("a", "")
	seen := make(map[pleg.ContainerID]bool)
	for _, c := range all(p) {
		if seen[c.ID] {
			continue
		}
		seen[c.ID] = true
		c.CreatedAt = at(0).Add(time.Duration(c.ID[len(c.ID)-1]) * time.Second)
		if len(c.ID) == 1 && c.ID[0] < '8' {
			unique.Containers = append(unique.Containers, c)
		} else {
			unique.Sandboxes = append(unique.Sandboxes, c)
		}
	}
	return unique
}
