package promises

import (
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Truth is the state of all pods of a node.
type Truth map[pleg.PodUID]Pod

// Pod is the state of one pod.
type Pod struct {
	Namespace, Name string
	// Containers are its containers and its sandboxes.
	Containers map[pleg.ContainerID]Container
}

// Container is the state of a container or a sandbox.
type Container struct {
	Sandbox bool
	// Name is the name of a container in its pod; if empty, it is not compared.
	Name    string
	State   pleg.State
	Attempt uint32
	// ExitCode and Reason are set if the container has exited.
	ExitCode int32
	Reason   string
	// IP is the primary address of a sandbox that is ready; empty without an address.
	IP string
}

// TruthOf returns the truth in the statuses of pods, such as those of a simulated runtime.
func TruthOf(pods []*pleg.PodStatus) Truth {
	truth := make(Truth)
	for _, p := range pods {
		truth[p.UID] = Pod{Namespace: p.Namespace, Name: p.Name, Containers: containersOf(p)}
	}
	return truth
}

// CachedTruth returns the truth in a cache, without pods whose inspection has failed.
func CachedTruth(entries []cache.Entry) Truth {
	var pods []*pleg.PodStatus
	for _, e := range entries {
		if e.Status != nil {
			pods = append(pods, e.Status)
		}
	}
	return TruthOf(pods)
}

func containersOf(status *pleg.PodStatus) map[pleg.ContainerID]Container {
	containers := make(map[pleg.ContainerID]Container)
	for _, s := range status.Containers {
		c := Container{Name: s.Name, State: s.State, Attempt: s.Attempt}
		if s.State == pleg.StateExited {
			c.ExitCode, c.Reason = s.ExitCode, s.Reason
		}
		containers[s.ID] = c
	}
	for _, s := range status.Sandboxes {
		c := Container{Sandbox: true, State: pleg.StateExited, Attempt: s.Attempt}
		if s.Ready {
			c.State = pleg.StateRunning
			if len(s.IPs) > 0 {
				c.IP = s.IPs[0]
			}
		}
		containers[s.ID] = c
	}
	return containers
}

// Diff returns a line for each difference between a cache and the truth.
func (truth Truth) Diff(entries []cache.Entry) []string {
	var diff []string
	for _, e := range entries {
		want, ok := truth[e.UID]
		switch {
		case !ok:
			diff = append(diff, fmt.Sprintf("cache: pod %s is gone", e.UID))
		case e.Err != nil:
			diff = append(diff, fmt.Sprintf("cache: pod %s: %v", e.UID, e.Err))
		default:
			diff = append(diff, diffPod(e.Status, want)...)
		}
	}
	for uid := range truth {
		if !slices.ContainsFunc(entries, func(e cache.Entry) bool { return e.UID == uid }) {
			diff = append(diff, fmt.Sprintf("cache: pod %s is missing", uid))
		}
	}
	slices.Sort(diff)
	return diff
}

func diffPod(status *pleg.PodStatus, want Pod) []string {
	var diff []string
	got := containersOf(status)
	for id, c := range want.Containers {
		known, ok := got[id]
		if c.Name == "" {
			known.Name = ""
		}
		if !ok || known != c {
			diff = append(diff, fmt.Sprintf("cache: %s/%s %.12s: got %+v, want %+v", want.Namespace, want.Name, id, known, c))
		}
		delete(got, id)
	}
	for id, c := range got {
		diff = append(diff, fmt.Sprintf("cache: %s/%s %.12s: got %+v, but it is gone", want.Namespace, want.Name, id, c))
	}
	return diff
}
