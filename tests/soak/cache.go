package soak

import (
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// compareCache says how what an agent knows differs from the truth.
func compareCache(known []client.Pod, truth Truth) []string {
	var diff []string
	seen := make(map[pleg.PodUID]bool, len(known))
	for _, pod := range known {
		seen[pod.UID] = true
		want, ok := truth[pod.UID]
		switch {
		case !ok:
			diff = append(diff, fmt.Sprintf("cache: pod %s is gone", pod.UID))
		case pod.Err != nil:
			diff = append(diff, fmt.Sprintf("cache: pod %s: %v", pod.UID, pod.Err))
		default:
			diff = append(diff, comparePod(pod.Status, want)...)
		}
	}
	for uid := range truth {
		if !seen[uid] {
			diff = append(diff, fmt.Sprintf("cache: pod %s is missing", uid))
		}
	}
	slices.Sort(diff)
	return diff
}

func comparePod(status *pleg.PodStatus, want Pod) []string {
	got := make(map[pleg.ContainerID]Container)
	for _, c := range status.Containers {
		known := Container{State: c.State, Attempt: c.Attempt}
		if c.State == pleg.StateExited {
			known.ExitCode, known.Reason = c.ExitCode, c.Reason
		}
		got[c.ID] = known
	}
	for _, s := range status.Sandboxes {
		known := Container{Sandbox: true, State: pleg.StateExited, Attempt: s.Attempt}
		if s.Ready {
			known.State = pleg.StateRunning
			if len(s.IPs) > 0 {
				known.IP = s.IPs[0]
			}
		}
		got[s.ID] = known
	}
	var diff []string
	for id, c := range want.Containers {
		if known, ok := got[id]; !ok || known != c {
			diff = append(diff, fmt.Sprintf("cache: %s/%s %.12s: got %+v, want %+v", want.Namespace, want.Name, id, known, c))
		}
		delete(got, id)
	}
	for id, c := range got {
		diff = append(diff, fmt.Sprintf("cache: %s/%s %.12s: got %+v, but it is gone", want.Namespace, want.Name, id, c))
	}
	return diff
}
