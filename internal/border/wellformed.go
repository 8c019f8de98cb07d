package border

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxTold bounds the malformed items that are logged until a list of all pods has none; all are
// counted.
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
	// uids and owners have the pods of that list and the first pod of each id; kept for their room.
	uids   map[pleg.PodUID]struct{}
	owners owners
	told   map[badItem]struct{}
}

type owners map[pleg.ContainerID]pleg.PodUID

// wellFormed leaves out what has no id, what has the id of another item of its pod, and a pod with
// the UID of another one. An id in two pods is kept in both, as pods do not depend on each other.
// A list that has nothing to leave out is returned as it is.
func (r *Runtime) wellFormed(ctx context.Context, pods []*pleg.Pod) []*pleg.Pod {
	x := &r.items
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(pods) > 0 && slices.Equal(pods, x.good) {
		return pods // the same pointers: nothing has changed
	}
	clear(x.uids)
	clear(x.owners)
	var bad []badItem
	kept := x.good[:0]
	for _, pod := range pods {
		switch {
		case pod == nil:
			bad = append(bad, badItem{reason: "it is nil"})
		case pod.UID == "":
			bad = append(bad, badItem{pod: pod.Namespace + "/" + pod.Name, reason: "the pod has no UID"})
		case x.has(pod.UID):
			bad = append(bad, badItem{podUID: pod.UID, pod: pod.Namespace + "/" + pod.Name, reason: "the list has the UID twice"})
		default:
			pod, bad = x.owners.clean(pod, bad)
			kept = append(kept, pod)
		}
	}
	if len(bad) == 0 {
		x.good = kept
		clear(x.told)
		return pods
	}
	x.good = nil
	r.tell(ctx, bad)
	return kept
}

// wellFormedPod is wellFormed for a list of one pod.
func (r *Runtime) wellFormedPod(ctx context.Context, pod *pleg.Pod) *pleg.Pod {
	r.items.mu.Lock()
	defer r.items.mu.Unlock()
	pod, bad := make(owners).clean(pod, nil)
	r.tell(ctx, bad)
	return pod
}

// has reports whether the list had a pod with this UID before, and notes that it has.
func (x *items) has(uid pleg.PodUID) bool {
	_, twice := x.uids[uid]
	x.uids[uid] = struct{}{}
	return twice
}

// clean returns the pod without what is left out, and adds its malformed items to bad. A pod of
// which nothing is left out is returned as it is.
func (o owners) clean(pod *pleg.Pod, bad []badItem) (*pleg.Pod, []badItem) {
	leaveOut := func(c *pleg.Container) bool {
		item, left := badItem{podUID: pod.UID, reason: "it is nil"}, true
		if c != nil {
			switch owner, known := o[c.ID]; {
			case c.ID == "":
				item.reason = "it has no id"
			case !known:
				o[c.ID] = pod.UID
				return false
			case owner == pod.UID:
				item.reason = "the pod has the id twice"
			default:
				item.reason, left = "pod "+string(owner)+" has the id too; it is kept in both", false
			}
			item.id, item.container = c.ID, c.Name
		}
		item.pod = pod.Namespace + "/" + pod.Name
		bad = append(bad, item)
		return left
	}
	containers, sandboxes := without(pod.Containers, leaveOut), without(pod.Sandboxes, leaveOut)
	if len(containers) == len(pod.Containers) && len(sandboxes) == len(pod.Sandboxes) {
		return pod, bad
	}
	clean := *pod
	clean.Containers, clean.Sandboxes = containers, sandboxes
	return &clean, bad
}

// without returns the list without some items; the list itself if there are none.
func without(list []*pleg.Container, leaveOut func(*pleg.Container) bool) []*pleg.Container {
	i := slices.IndexFunc(list, leaveOut)
	if i < 0 {
		return list
	}
	return append(slices.Clone(list[:i]), slices.DeleteFunc(slices.Clone(list[i+1:]), leaveOut)...)
}

// tell counts the malformed items of a list, and logs those that are new. It is called with
// items.mu held.
func (r *Runtime) tell(ctx context.Context, bad []badItem) {
	r.malformed.Add(float64(len(bad)))
	for _, s := range bad {
		if _, known := r.items.told[s]; known || len(r.items.told) >= maxTold {
			continue
		}
		r.items.told[s] = struct{}{}
		r.log.WarnContext(ctx, "malformed item in the runtime's list",
			"podUID", s.podUID, "pod", s.pod, "containerID", s.id, "container", s.container, "reason", s.reason)
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
