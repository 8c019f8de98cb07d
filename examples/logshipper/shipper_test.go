package main

import (
	"errors"
	"strings"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A PodSync replaces discarded events: a start, an end, a removal.
func TestShipperCatchesUpAfterPodSync(t *testing.T) {
	var out strings.Builder
	status := &pipeline.PodStatus{Containers: []*pleg.ContainerStatus{
		{ID: "a", Name: "a", State: pleg.StateExited},
		{ID: "c", Name: "c", State: pleg.StateRunning, Attempt: 2},
	}}
	var failure error
	s := newShipper(&out, func(pipeline.PodUID) (*pipeline.PodStatus, error) { return status, failure })
	for _, id := range []pleg.ContainerID{"a", "b"} {
		s.handle(event(pipeline.ContainerStarted, id))
	}
	failure = errors.New("inspection failed")
	s.handle(event(pipeline.PodSync, ""))
	failure = nil
	s.handle(event(pipeline.PodSync, ""))
	s.handle(event(pipeline.PodSync, ""))
	s.handle(event(pipeline.ContainerDied, "c"))
	for _, id := range []pleg.ContainerID{"a", "b", "c"} {
		s.handle(event(pipeline.ContainerRemoved, id))
	}
	want := "read a/0, read b/0, complete a/0, read c/2, complete b/0, complete c/2"
	got := strings.NewReplacer("/var/log/pods/n_p_u/", "", ".log\n", ", ").Replace(out.String())
	if got := strings.TrimSuffix(got, ", "); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if len(s.logs) > 0 {
		t.Errorf("the shipper still has %v of removed containers", s.logs)
	}
}

func event(t pipeline.EventType, id pleg.ContainerID) pipeline.Event {
	return pipeline.Event{Type: t, PodUID: "u", PodName: "p", PodNamespace: "n", ContainerID: id, ContainerName: string(id)}
}
