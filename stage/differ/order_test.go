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

// A pod has the labels of its newest sandbox, whichever sandbox an event is about.
func TestMergeKeepsTheLabelsOfTheNewestSandbox(t *testing.T) {
	pod := func(label string, sandboxes ...int) *pleg.Pod {
		p := plegtest.Pod("web/a", "")
		p.Labels = map[string]string{"version": label}
		for _, n := range sandboxes {
			p.Sandboxes = append(p.Sandboxes, &pleg.Container{ID: pleg.ContainerID(fmt.Sprint(n)), CreatedAt: at(n), State: pleg.StateRunning})
		}
		return p
	}
	for _, tc := range []struct {
		name        string
		have, event *pleg.Pod
		want        string
	}{
		{"the older sandbox", pod("new", 2, 1), pod("old", 1), "new"},
		{"the newest sandbox", pod("old", 2, 1), pod("new", 2), "new"},
		{"a newer sandbox", pod("old", 1), pod("new", 2), "new"},
		{"no sandbox left", pod("new", 1), pod("", []int{}...), "new"},
		{"the first sandbox", nil, pod("new", 1), "new"},
	} {
		got := differ.Merge(tc.have, &pleg.Hint{UID: "web/a", Pod: tc.event}, func(pleg.ContainerID) bool { return false })
		if got.Labels["version"] != tc.want {
			t.Errorf("%s: labels %v, want %q", tc.name, got.Labels, tc.want)
		}
	}
}

// The CRI event of a removed sandbox does not have the name of the pod.
func TestMergeKeepsTheNameOfAPodWithoutASandbox(t *testing.T) {
	have := plegtest.Pod("a", "c=exited /s=exited")
	have.Labels = map[string]string{"app": "web"}
	event := &pleg.Pod{UID: "a"}
	got := differ.Merge(have, &pleg.Hint{UID: "a", Pod: event}, func(id pleg.ContainerID) bool { return id == "s" })
	if got.Name != have.Name || got.Namespace != have.Namespace || got.Labels["app"] != "web" {
		t.Errorf("merged = %+v, want the name and the labels of %+v", got, have)
	}
}

// FuzzMerge merges any CRI event into any pod. The result has each container of
// both once, in the later of its states, except removed ones. The same CRI event
// changes nothing the second time.
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
		for _, c := range slices.Concat(containersOf(have), containersOf(event)) {
			if !removed(c.ID) {
				want[c.ID] = max(want[c.ID], c.State)
			}
		}
		hint := &pleg.Hint{UID: "a", Pod: event}
		before := [2]string{stateWords(have), stateWords(event)}
		got := differ.Merge(have, hint, removed)
		if after := [2]string{stateWords(have), stateWords(event)}; after != before {
			t.Errorf("the read-only record and event became %q, they were %q", after, before)
		}
		states := make(map[pleg.ContainerID]pleg.State)
		for _, c := range containersOf(got) {
			if _, twice := states[c.ID]; twice {
				t.Errorf("container %s is listed twice", c.ID)
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
			t.Errorf("%s, after the same CRI event %s", stateWords(got), stateWords(again))
		}
	})
}

// uniquePod is fuzzedPod without duplicate ids. Ids below 8 are containers, the
// others sandboxes; each has its own creation time.
func uniquePod(bytes []byte) *pleg.Pod {
	p := fuzzedPod(bytes)
	if p == nil {
		return nil
	}
	unique := plegtest.Pod("a", "")
	seen := make(map[pleg.ContainerID]bool)
	for _, c := range containersOf(p) {
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
