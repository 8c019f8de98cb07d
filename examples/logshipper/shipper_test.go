package main

import (
	"errors"
	"strings"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A PodSync makes good whatever was missed: a start, an end, a removal.
func TestShipperCatchesUp(t *testing.T) {
	var out strings.Builder
	status := &pipeline.PodStatus{Containers: []*pleg.ContainerStatus{
		{ID: "a", Name: "a", State: pleg.StateExited},
		{ID: "c", Name: "c", State: pleg.StateRunning, Attempt: 2},
	}}
	var broken error
	s := newShipper(&out, func(pipeline.PodUID) (*pipeline.PodStatus, error) { return status, broken })
	for _, id := range []pleg.ContainerID{"a", "b"} {
		s.heed(event(pipeline.ContainerStarted, id))
	}
	broken = errors.New("broken")
	s.heed(event(pipeline.PodSync, ""))
	broken = nil
	s.heed(event(pipeline.PodSync, ""))
	s.heed(event(pipeline.PodSync, ""))
	s.heed(event(pipeline.ContainerDied, "c"))
	for _, id := range []pleg.ContainerID{"a", "b", "c"} {
		s.heed(event(pipeline.ContainerRemoved, id))
	}
	want := "follow a/0, follow b/0, complete a/0, follow c/2, complete b/0, complete c/2"
	got := strings.NewReplacer("/var/log/pods/n_p_u/", "", ".log\n", ", ").Replace(out.String())
	if got := strings.TrimSuffix(got, ", "); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if len(s.logs) > 0 {
		t.Errorf("remembers %v of containers that are gone", s.logs)
	}
}

func event(t pipeline.EventType, id pleg.ContainerID) pipeline.Event {
	return pipeline.Event{Type: t, PodUID: "u", PodName: "p", PodNamespace: "n", ContainerID: id, ContainerName: string(id)}
}
