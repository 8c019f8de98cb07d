package promises

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// State rebuilds the state of a node from the events of one subscriber, by the rules of
// docs/subscriptions.md. It is not safe for concurrent use.
type State struct {
	// Wants reports whether the subscriber's filter lets through the events of a
	// container; if nil, of all.
	Wants func(Pod, Container) bool
	// Look returns the status of a pod in the cache. It is called for each PodSync, unless it
	// is nil.
	Look func(pleg.PodUID) (*pleg.PodStatus, error)
	// Statuses says that the events contain the status, so that Look is not called.
	Statuses bool

	pods map[pleg.PodUID]map[pleg.ContainerID]bool // whether each runs
	// unsure are the pods whose inspection had failed when they were looked at:
	// the next event of such a pod comes once an inspection has succeeded.
	unsure map[pleg.PodUID]bool
}

// Add applies an event.
func (s *State) Add(ev pleg.Event) {
	switch {
	case ev.Type == pleg.Gap:
		s.pods, s.unsure = nil, nil // a replay follows
	case ev.Type == pleg.PodSync || s.unsure[ev.PodUID]:
		switch {
		case s.Statuses:
			s.look(ev.PodUID, ev.Status, nil)
		case s.Look != nil:
			status, err := s.Look(ev.PodUID)
			s.look(ev.PodUID, status, err)
		}
	case ev.Type == pleg.ContainerStarted || ev.Type == pleg.ContainerDied:
		if s.pods[ev.PodUID] == nil {
			s.set(ev.PodUID, make(map[pleg.ContainerID]bool))
		}
		s.pods[ev.PodUID][ev.ContainerID] = ev.Type == pleg.ContainerStarted
	case ev.Type == pleg.ContainerRemoved:
		delete(s.pods[ev.PodUID], ev.ContainerID)
		if len(s.pods[ev.PodUID]) == 0 {
			delete(s.pods, ev.PodUID)
		}
	}
}

func (s *State) set(uid pleg.PodUID, running map[pleg.ContainerID]bool) {
	if s.pods == nil {
		s.pods, s.unsure = make(map[pleg.PodUID]map[pleg.ContainerID]bool), make(map[pleg.PodUID]bool)
	}
	s.pods[uid] = running
}

func (s *State) wants(p Pod, c Container) bool { return s.Wants == nil || s.Wants(p, c) }

func (s *State) look(uid pleg.PodUID, status *pleg.PodStatus, err error) {
	switch {
	case errors.Is(err, pleg.ErrUnknownPod):
		status = &pleg.PodStatus{UID: uid} // the pod is gone
	case err != nil:
		s.set(uid, s.pods[uid])
		s.unsure[uid] = true
		return
	}
	delete(s.unsure, uid)
	running := make(map[pleg.ContainerID]bool)
	pod := Pod{Namespace: status.Namespace, Name: status.Name}
	for id, c := range containersOf(status) {
		if hasEvent(c) && s.wants(pod, c) {
			running[id] = c.State == pleg.StateRunning
		}
	}
	s.set(uid, running)
}

// hasEvent reports whether events report a container's state: created and unknown are not reported.
func hasEvent(c Container) bool { return c.State == pleg.StateRunning || c.State == pleg.StateExited }

// Diff returns a line for each difference between the state and the truth.
func (s *State) Diff(truth Truth) []string {
	var diff []string
	for uid, pod := range truth {
		for id, c := range pod.Containers {
			if !s.wants(pod, c) {
				continue
			}
			running, ok := s.pods[uid][id]
			if running != (c.State == pleg.StateRunning) || hasEvent(c) && !ok {
				diff = append(diff, fmt.Sprintf("%s/%s %.12s: by its events known %v and running %v, is %v",
					pod.Namespace, pod.Name, id, ok, running, c.State))
			}
		}
	}
	for uid, pod := range s.pods {
		for id := range pod {
			if _, ok := truth[uid].Containers[id]; !ok {
				diff = append(diff, fmt.Sprintf("pod %s %.12s: by its events there, is gone", uid, id))
			}
		}
	}
	slices.Sort(diff)
	return diff
}
