package differ_test

import (
	"fmt"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

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
