package inspector

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// contradicted describes how the list and the statuses of a pod differ.
type contradicted struct {
	found []pleg.Contradiction
	times int // inspections in a row
}

// compare compares a new status with the list that led to it. It reports whether they contradict
// each other: the pod is to be inspected again.
func (i *Inspector) compare(pod *pleg.Pod, status *pleg.PodStatus, now time.Time) bool {
	found := contradictions(pod, status)
	if len(found) == 0 {
		delete(i.contradicted, pod.UID)
		return false
	}
	was := i.contradicted[pod.UID]
	for n := range found {
		found[n].Since = now
		if at := was.find(found[n].Container); at >= 0 {
			found[n].Since = was.found[at].Since
		}
	}
	i.contradicted[pod.UID] = contradicted{found, was.times + 1}
	return true
}

func (c contradicted) find(id pleg.ContainerID) int {
	return slices.IndexFunc(c.found, func(one pleg.Contradiction) bool { return one.Container == id })
}

// contradictions returns the containers and sandboxes that the status of a pod lacks, or shows in
// another state than the list. An unknown state in a list contradicts nothing.
func contradictions(pod *pleg.Pod, status *pleg.PodStatus) (found []pleg.Contradiction) {
	add := func(c *pleg.Container, sandbox bool, state pleg.State, known bool) {
		if c.State == pleg.StateUnknown || c.State == state {
			return
		}
		found = append(found, pleg.Contradiction{
			UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
			Container: c.ID, ContainerName: c.Name, Sandbox: sandbox, Listed: c.State, Status: state, Missing: !known,
		})
	}
	for _, c := range pod.Containers {
		if s := status.Container(c.ID); s != nil {
			add(c, false, s.State, true)
		} else {
			add(c, false, pleg.StateUnknown, false)
		}
	}
	for _, c := range pod.Sandboxes {
		switch s := status.Sandbox(c.ID); {
		case s == nil:
			add(c, true, pleg.StateUnknown, false)
		case s.Ready:
			add(c, true, pleg.StateRunning, true)
		default:
			add(c, true, pleg.StateExited, true)
		}
	}
	return found
}

// lasting returns the contradictions that two inspections have seen, the longest first: a single
// inspection may have seen a change between the list and the status.
func (i *Inspector) lasting() (all []pleg.Contradiction) {
	for _, c := range i.contradicted {
		if c.times > 1 {
			all = append(all, c.found...)
		}
	}
	slices.SortFunc(all, func(a, b pleg.Contradiction) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return slices.Compare([]string{string(a.UID), string(a.Container)}, []string{string(b.UID), string(b.Container)})
	})
	return all
}
