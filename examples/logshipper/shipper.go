package main

import (
	"fmt"
	"io"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// shipper knows which logs it follows. One goroutine uses it.
type shipper struct {
	out    io.Writer
	status func(pipeline.PodUID) (*pipeline.PodStatus, error)
	// logs has the containers of each pod that have not been removed.
	logs map[pipeline.PodUID]map[pleg.ContainerID]*log
}

type log struct {
	path     string
	complete bool
}

func newShipper(out io.Writer, status func(pipeline.PodUID) (*pipeline.PodStatus, error)) *shipper {
	return &shipper{out: out, status: status, logs: make(map[pipeline.PodUID]map[pleg.ContainerID]*log)}
}

// heed acts on one event. The first that tells of a container need not be its
// start: what lived and died between two lists begins with its end.
func (s *shipper) heed(ev pipeline.Event) {
	switch ev.Type {
	case pipeline.ContainerStarted:
		s.follow(ev.PodUID, ev.ContainerID, path(ev, ev.ContainerName, ev.Attempt))
	case pipeline.ContainerDied:
		s.finish(ev.PodUID, ev.ContainerID, path(ev, ev.ContainerName, ev.Attempt))
	case pipeline.ContainerRemoved:
		s.forget(ev.PodUID, ev.ContainerID)
	case pipeline.PodSync:
		s.look(ev)
	}
}

// look compares what is followed with the pod as it is now: a PodSync stands for
// events that this subscriber was too slow for.
func (s *shipper) look(ev pipeline.Event) {
	status, err := s.status(ev.PodUID)
	if err != nil {
		// The next inspection that succeeds brings another event.
		return
	}
	for _, c := range status.Containers {
		switch c.State {
		case pleg.StateRunning:
			s.follow(ev.PodUID, c.ID, path(ev, c.Name, c.Attempt))
		case pleg.StateExited:
			s.finish(ev.PodUID, c.ID, path(ev, c.Name, c.Attempt))
		}
	}
	for id, l := range s.logs[ev.PodUID] {
		if status.Container(id) == nil {
			s.finish(ev.PodUID, id, l.path)
			s.forget(ev.PodUID, id)
		}
	}
}

func (s *shipper) follow(uid pipeline.PodUID, id pleg.ContainerID, path string) *log {
	if l := s.logs[uid][id]; l != nil {
		return l
	}
	if s.logs[uid] == nil {
		s.logs[uid] = make(map[pleg.ContainerID]*log)
	}
	l := &log{path: path}
	s.logs[uid][id] = l
	fmt.Fprintln(s.out, "follow", path)
	return l
}

func (s *shipper) finish(uid pipeline.PodUID, id pleg.ContainerID, path string) {
	l := s.follow(uid, id, path)
	if !l.complete {
		l.complete = true
		fmt.Fprintln(s.out, "complete", l.path)
	}
}

func (s *shipper) forget(uid pipeline.PodUID, id pleg.ContainerID) {
	delete(s.logs[uid], id)
	if len(s.logs[uid]) == 0 {
		delete(s.logs, uid)
	}
}

// path is where the kubelet has the runtime write the log of a container.
func path(ev pipeline.Event, container string, attempt uint32) string {
	return fmt.Sprintf("/var/log/pods/%s_%s_%s/%s/%d.log", ev.PodNamespace, ev.PodName, ev.PodUID, container, attempt)
}
