package differ_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

func TestEventsHaveTheFieldsOfTheirContainer(t *testing.T) {
	cur := plegtest.Pod("a", "c=running /s=running")
	cur.Containers[0].Attempt, cur.Sandboxes[0].Attempt = 4, 2
	want := []pleg.Event{{
		Type: pleg.ContainerStarted, PodUID: "a", PodName: "name-a", PodNamespace: "ns",
		ContainerID: "c", ContainerName: "of-c", Attempt: 4, ObservedAt: at(7),
	}, {
		Type: pleg.ContainerStarted, PodUID: "a", PodName: "name-a", PodNamespace: "ns",
		ContainerID: "s", ContainerName: "name-a", Attempt: 2, Sandbox: true, ObservedAt: at(7),
	}}
	got := differ.Events(nil, cur, at(7))
	if len(got) != len(want) {
		t.Fatalf("events = %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("event %d = %+v, want %+v", i, got[i], want[i])
		}
	}
}
