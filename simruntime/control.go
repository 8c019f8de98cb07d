package simruntime

import (
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// AddPod is [State.AddPod] in a single update.
func (rt *Runtime) AddPod(spec PodSpec) (pod *pleg.PodStatus) {
	rt.Update(func(s *State) { pod = s.AddPod(spec) })
	return pod
}

// ExitContainer is [State.ExitContainer] in a single update.
func (rt *Runtime) ExitContainer(id pleg.ContainerID, code int32, reason string) (err error) {
	rt.Update(func(s *State) { err = s.ExitContainer(id, code, reason) })
	return err
}

// RestartContainer is [State.RestartContainer] in a single update.
func (rt *Runtime) RestartContainer(id pleg.ContainerID) (next *pleg.ContainerStatus, err error) {
	rt.Update(func(s *State) { next, err = s.RestartContainer(id) })
	return next, err
}

// StopPod is [State.StopPod] in a single update.
func (rt *Runtime) StopPod(uid pleg.PodUID) (err error) {
	rt.Update(func(s *State) { err = s.StopPod(uid) })
	return err
}

// RemovePod is [State.RemovePod] in a single update.
func (rt *Runtime) RemovePod(uid pleg.PodUID) (err error) {
	rt.Update(func(s *State) { err = s.RemovePod(uid) })
	return err
}

// Population describes the pods that [Runtime.Populate] adds.
type Population struct {
	Pods       int // Pods to add.
	Containers int // Containers is the number of containers in each pod.
	Exited     int // Exited is the number of these containers that have exited, with code 0.
	Dead       int // Dead is the number of earlier, exited attempts of each container.
}

// Populate adds pods with realistic names in one update and returns them.
func (rt *Runtime) Populate(p Population) (pods []*pleg.PodStatus) {
	rt.Update(func(s *State) {
		for range p.Pods {
			spec := drawWorkload(s.rng).podSpec(s.rng)
			spec.Containers = p.containers(spec.Containers)
			pods = append(pods, s.AddPod(spec))
		}
	})
	return pods
}

// containers returns the containers of a pod. The first ones get the given names.
func (p Population) containers(named []pleg.ContainerStatus) []pleg.ContainerStatus {
	var out []pleg.ContainerStatus
	for i := range p.Containers {
		name := fmt.Sprintf("sidecar-%d", i)
		if i < len(named) {
			name = named[i].Name
		}
		for attempt := range p.Dead {
			out = append(out, pleg.ContainerStatus{Name: name, Attempt: uint32(attempt), State: pleg.StateExited, ExitCode: 1})
		}
		last := pleg.ContainerStatus{Name: name, Attempt: uint32(p.Dead)}
		if i < p.Exited {
			last.State = pleg.StateExited
		}
		out = append(out, last)
	}
	return out
}

// Change is a change of a pod by [Runtime.Burst].
type Change int

// The changes.
const (
	// Restart restarts every container that runs; the old ones stay, exited.
	Restart Change = iota
	// Replace is Restart, and removes exited containers with a successor.
	Replace
	// Exit ends every container that runs with code 1.
	Exit
	// Remove removes the pod.
	Remove
)

// Burst changes k pods in one update, so that one list shows all the changes, and returns the UIDs
// of the pods. It takes the oldest pods with a running container (with Remove: the oldest
// pods), and fewer than k if there are no more.
func (rt *Runtime) Burst(k int, change Change) []pleg.PodUID {
	var uids []pleg.PodUID
	rt.Update(func(s *State) {
		for _, sb := range s.live() {
			if len(uids) == k {
				return
			}
			if s.burst(sb, change) {
				uids = append(uids, sb.uid())
			}
		}
	})
	return uids
}

// burst reports whether it changed a pod.
func (s *State) burst(sb *sandbox, change Change) bool {
	if change == Remove {
		s.removeSandbox(sb)
		return true
	}
	changed := false
	for _, c := range slices.Clone(sb.containers) {
		if c.exited() {
			continue
		}
		changed = true
		s.exit(c, 1, "")
		if change != Exit {
			s.successor(c)
		}
	}
	if changed && change == Replace {
		s.prune(sb)
	}
	return changed
}
