package border

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxTold bounds the malformed items of a list that are logged; all are counted.
const maxTold = 100

// badItem is a malformed item of a list. Its fields name it in the log.
type badItem struct {
	podUID    pleg.PodUID
	pod       string
	id        pleg.ContainerID
	container string
	reason    string
}

// items says which items of the lists are malformed.
type items struct {
	mu sync.Mutex
	// good is the newest list of all pods if nothing of it was malformed, otherwise empty.
	good []*pleg.Pod
	// owners has the first pod of each id in the newest list of all pods, uids the pods of the list.
	owners map[pleg.ContainerID]pleg.PodUID
	uids   map[pleg.PodUID]struct{}
	// told are the items of that list that were logged, and of lists of one pod since.
	told map[badItem]struct{}
}

// wellFormed leaves out what has no id, what has the id of another item of its pod, and a pod with
// the UID of another pod. An id in two pods is kept in both, as pods do not depend on each other. A
// list without malformed items is returned as it is.
func (r *Runtime) wellFormed(ctx context.Context, pods []*pleg.Pod) []*pleg.Pod {
	r.items.mu.Lock()
	defer r.items.mu.Unlock()
	if len(pods) > 0 && slices.Equal(pods, r.items.good) {
		return pods // the same pointers: nothing has changed
	}
	if r.items.own(pods) {
		r.items.good, r.items.told = append(r.items.good[:0], pods...), nil // the slice is the runtime's
		return pods
	}
	r.items.good = r.items.good[:0]
	var bad []badItem
	kept := make([]*pleg.Pod, 0, len(pods))
	clear(r.items.uids)
	for _, pod := range pods {
		switch {
		case pod == nil:
			bad = append(bad, badItem{reason: "it is nil"})
		case pod.UID == "":
			bad = append(bad, badItem{pod: pod.Namespace + "/" + pod.Name, reason: "the pod has no UID"})
		case r.items.has(pod.UID):
			bad = append(bad, badItem{podUID: pod.UID, pod: pod.Namespace + "/" + pod.Name, reason: "the list has the UID twice"})
		default:
			pod, bad = r.items.clean(pod, bad)
			kept = append(kept, pod)
		}
	}
	r.tell(ctx, bad, true)
	return kept
}

// wellFormedPod is wellFormed for a list of one pod.
func (r *Runtime) wellFormedPod(ctx context.Context, pod *pleg.Pod) *pleg.Pod {
	r.items.mu.Lock()
	defer r.items.mu.Unlock()
	pod, bad := r.items.clean(pod, nil)
	r.tell(ctx, bad, false)
	return pod
}

// own finds the owner of each id. It returns false if an item is malformed.
func (x *items) own(pods []*pleg.Pod) (good bool) {
	good = true
	if x.owners == nil {
		x.owners, x.uids = make(map[pleg.ContainerID]pleg.PodUID), make(map[pleg.PodUID]struct{})
	}
	clear(x.owners)
	clear(x.uids)
	for _, pod := range pods {
		if pod == nil || pod.UID == "" || x.has(pod.UID) {
			good = false
			continue
		}
		for _, containers := range [...][]*pleg.Container{pod.Containers, pod.Sandboxes} {
			for _, c := range containers {
				if c == nil || c.ID == "" {
					good = false
					continue
				}
				if _, twice := x.owners[c.ID]; twice {
					good = false
					continue
				}
				x.owners[c.ID] = pod.UID
			}
		}
	}
	return good
}

// has reports whether the list had a pod with this UID before, and notes that it has.
func (x *items) has(uid pleg.PodUID) bool {
	_, twice := x.uids[uid]
	x.uids[uid] = struct{}{}
	return twice
}

// clean returns the pod without what is left out, and adds its malformed items to bad. A pod of
// which nothing is left out is returned as it is.
func (x *items) clean(pod *pleg.Pod, bad []badItem) (*pleg.Pod, []badItem) {
	seen := make(map[pleg.ContainerID]struct{})
	leaveOut := func(c *pleg.Container) bool {
		item := badItem{podUID: pod.UID, pod: pod.Namespace + "/" + pod.Name}
		switch {
		case c == nil:
			item.reason = "it is nil"
		case c.ID == "":
			item.reason = "it has no id"
		default:
			if _, twice := seen[c.ID]; twice {
				item.reason = "the pod has the id twice"
			}
			seen[c.ID] = struct{}{}
		}
		if c != nil {
			item.id, item.container = c.ID, c.Name
		}
		if item.reason != "" {
			bad = append(bad, item)
			return true
		}
		if owner, ok := x.owners[c.ID]; ok && owner != pod.UID {
			item.reason = "pod " + string(owner) + " has the id too; it is kept in both"
			bad = append(bad, item)
		}
		return false
	}
	containers := slices.DeleteFunc(slices.Clone(pod.Containers), leaveOut)
	sandboxes := slices.DeleteFunc(slices.Clone(pod.Sandboxes), leaveOut)
	if len(containers) == len(pod.Containers) && len(sandboxes) == len(pod.Sandboxes) {
		return pod, bad
	}
	clean := *pod
	clean.Containers, clean.Sandboxes = containers, sandboxes
	return &clean, bad
}

// tell counts the malformed items of a list, and logs items that the list before did not have. It
// is called with items.mu held.
func (r *Runtime) tell(ctx context.Context, bad []badItem, all bool) {
	before := r.items.told
	if all || before == nil {
		r.items.told = make(map[badItem]struct{})
	}
	r.malformed.Add(float64(len(bad)))
	for _, s := range bad[:min(len(bad), maxTold)] {
		_, known := before[s]
		_, again := r.items.told[s]
		if r.items.told[s] = struct{}{}; !known && !again {
			r.log.WarnContext(ctx, "malformed item in the runtime's list",
				"podUID", s.podUID, "pod", s.pod, "containerID", s.id, "container", s.container, "reason", s.reason)
		}
	}
}

// checkStatus refuses a status of another pod. It may leave the UID out.
func checkStatus(status *pleg.PodStatus, uid pleg.PodUID) error {
	switch {
	case status == nil:
		return errors.New("the runtime returned neither a status nor an error")
	case status.UID != "" && status.UID != uid:
		return fmt.Errorf("the runtime returned the status of pod %s", status.UID)
	case slices.Contains(status.Containers, nil) || slices.Contains(status.Sandboxes, nil):
		return errors.New("the runtime returned a status with a nil container or sandbox")
	}
	return nil
}
