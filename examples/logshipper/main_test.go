package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestProgram(t *testing.T) {
	exampletest.RequireProgram(t, "logshipper", "read /var/log/pods/shop_web_u/nginx/0.log")
}

// The log of every container is read and completed, even if the container ran before the shipper
// started, exited between two relists, or was removed at once.
func TestLogShipperReadsLogOfEveryContainer(t *testing.T) {
	rt, _ := exampletest.NewRuntime(t, simruntime.PodSpec{UID: "u", Namespace: "shop", Name: "web", Containers: []pleg.ContainerStatus{
		{Name: "nginx"}, {Name: "init", State: pleg.StateExited},
	}})
	out := exampletest.Run(t, rt, run)
	const logs = "/var/log/pods/shop_web_u/"
	read := out.Await("read "+logs+"nginx/0.log", "read "+logs+"init/0.log", "complete "+logs+"init/0.log")
	runContainer(t, rt, "short", false)
	read = append(read, out.Await("read "+logs+"short/0.log", "complete "+logs+"short/0.log")...)
	for n := range 5 { // events count from the first list of all pods with the stream up, which may be late
		name := fmt.Sprint("next-", n)
		runContainer(t, rt, name, false)
		read = append(read, out.Await("complete "+logs+name+"/0.log")...)
	}
	runContainer(t, rt, "removed", true)
	read = append(read, out.Await("read "+logs+"removed/0.log", "complete "+logs+"removed/0.log")...)
	if slices.Contains(read, "read "+logs+"web/0.log") {
		t.Errorf("printed %q, want nothing of the sandbox", read)
	}
}

// runContainer starts a container, ends it and may remove it, all at the same time.
func runContainer(t *testing.T, rt *simruntime.Runtime, name string, remove bool) {
	t.Helper()
	rt.Update(func(s *simruntime.State) {
		c, err := s.AddContainer("u", pleg.ContainerStatus{Name: name})
		if err == nil {
			err = s.ExitContainer(c.ID, 0, "Completed")
		}
		if err == nil && remove {
			err = s.RemoveContainer(c.ID)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// After a Gap the present state replaces the events that were missed: a start, an end, a removal.
func TestShipperCatchesUpAfterGap(t *testing.T) {
	var out strings.Builder
	s := newShipper(&out, func(pleg.ContainerID) *pleg.ContainerStatus { return nil })
	for _, ev := range []pleg.Event{
		event(pleg.ContainerStarted, "a"), event(pleg.ContainerStarted, "b"), event(pleg.ContainerStarted, "d"),
		event(pleg.Gap, ""), event(pleg.ContainerDied, "a"), event(pleg.ContainerStarted, "c"), event(pleg.ContainerStarted, "d"), event(pleg.Synced, ""),
		event(pleg.ContainerDied, "c"), event(pleg.ContainerDied, "d"),
		event(pleg.ContainerRemoved, "a"), event(pleg.ContainerRemoved, "c"), event(pleg.ContainerRemoved, "d"),
	} {
		s.handle(ev)
	}
	want := "read a/0, read b/0, read d/0, complete a/0, read c/0, complete b/0, complete c/0, complete d/0"
	got := strings.NewReplacer("/var/log/pods/n_p_u/", "", ".log\n", ", ").Replace(out.String())
	if got := strings.TrimSuffix(got, ", "); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if len(s.logs) > 0 {
		t.Errorf("the shipper still has %v of removed containers", s.logs)
	}
}

func event(t pleg.EventType, id pleg.ContainerID) pleg.Event {
	return pleg.Event{Type: t, PodUID: "u", PodName: "p", PodNamespace: "n", ContainerID: id, ContainerName: string(id)}
}

// The path of a log comes from the status, also from the last status of a container that is gone.
func TestPathIsThatOfTheRuntime(t *testing.T) {
	s := newShipper(&strings.Builder{}, func(id pleg.ContainerID) *pleg.ContainerStatus {
		if id == "gone" {
			return &pleg.ContainerStatus{ID: id, LogPath: "/logs/gone"}
		}
		return nil
	})
	status := &pleg.PodStatus{Containers: []*pleg.ContainerStatus{{ID: "runs", LogPath: "/logs/runs"}, {ID: "silent"}}}
	for id, want := range map[pleg.ContainerID]string{"runs": "/logs/runs", "gone": "/logs/gone", "silent": "/var/log/pods/n_p_u/silent/0.log"} {
		ev := event(pleg.ContainerDied, id)
		ev.Status = status
		if got := s.path(ev); got != want {
			t.Errorf("log of %s: %q, want %q", id, got, want)
		}
	}
}
