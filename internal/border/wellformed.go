package border

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxTold bounds the malformed items that are logged until a list of all pods contains none; all are
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
	// uids are the pods of the newest list, owners the pods of its ids, before the owners of the
	// previous list. The maps are kept so that their memory is used again.
	uids           map[pleg.PodUID]struct{}
	owners, before owners
	told           map[badItem]struct{}
}

type owners map[pleg.ContainerID]owner

// owner is the first pod with an id. shared is set if another pod contains it too.
type owner struct {
	pod    pleg.PodUID
	shared bool
}

// wellFormed leaves out items without an id or with the id of another item of the pod. It leaves out
// a pod with the UID of another pod. An id in two pods is kept in both, because pods do not depend on
// each other. If an id moves from one pod to another, it stays in the first while that is listed. The
// returned slice is never the runtime's, which may use that again.
func (r *Runtime) wellFormed(ctx context.Context, pods []*pleg.Pod) []*pleg.Pod {
	x := &r.items
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(pods) > 0 && slices.Equal(pods, x.good) {
		return x.good // the same pointers: nothing has changed
	}
	clear(x.uids)
	x.before, x.owners = x.owners, x.before
	clear(x.owners)
	var bad []badItem
	kept := make([]*pleg.Pod, 0, len(pods)) // the stages may still read the last list
	for _, pod := range pods {
		switch {
		case pod == nil:
			bad = append(bad, badItem{reason: "it is nil"})
		case pod.UID == "":
			bad = append(bad, badItem{pod: pod.Namespace + "/" + pod.Name, reason: "the pod has no UID"})
		case x.has(pod.UID):
			bad = append(bad, badItem{podUID: pod.UID, pod: pod.Namespace + "/" + pod.Name, reason: "the list has the UID twice"})
		default:
			if !utf8.ValidString(string(pod.UID)) {
				bad = append(bad, badItem{podUID: pod.UID, pod: pod.Namespace + "/" + pod.Name, reason: "the UID is not UTF-8; it is kept, and the socket shows it with U+FFFD"})
			}
			pod, bad = x.owners.clean(pod, bad)
			kept = append(kept, pod)
		}
	}
	if !r.kubeletEvents {
		kept, bad = x.keepInPlace(kept, bad)
	}
	if len(bad) == 0 {
		x.good = kept
		clear(x.told)
		return kept
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

// has reports whether the list showed a pod with this UID before, and notes the UID.
func (x *items) has(uid pleg.PodUID) bool {
	_, twice := x.uids[uid]
	x.uids[uid] = struct{}{}
	return twice
}

// clean returns the pod without its malformed items, and adds these to bad. A pod without malformed
// items is returned as it is.
func (o owners) clean(pod *pleg.Pod, bad []badItem) (*pleg.Pod, []badItem) {
	leaveOut := func(c *pleg.Container) bool {
		item, left := badItem{podUID: pod.UID, reason: "it is nil"}, true
		if c != nil {
			switch first, known := o[c.ID]; {
			case c.ID == "":
				item.reason = "it has no id"
			case !known:
				o[c.ID] = owner{pod: pod.UID}
				return false
			case first.pod == pod.UID:
				item.reason = "the pod has the id twice"
			default:
				o[c.ID] = owner{first.pod, true}
				item.reason, left = "pod "+string(first.pod)+" has the id too; it is kept in both", false
			}
			item.id, item.container = c.ID, c.Name
		}
		item.pod = pod.Namespace + "/" + pod.Name
		bad = append(bad, item)
		return left
	}
	containers, sandboxes := without(pod.Containers, leaveOut), without(pod.Sandboxes, leaveOut)
	containers, cut := cutTimes(containers)
	sandboxes, cutToo := cutTimes(sandboxes)
	if len(containers) == len(pod.Containers) && len(sandboxes) == len(pod.Sandboxes) && !cut && !cutToo {
		return pod, bad
	}
	clean := *pod
	clean.Containers, clean.Sandboxes = containers, sandboxes
	return &clean, bad
}

// keepInPlace puts each container that has left its pod back into it, if the pod is still listed: the
// id of a container never moves, so the runtime is wrong about it.
func (x *items) keepInPlace(pods []*pleg.Pod, bad []badItem) ([]*pleg.Pod, []badItem) {
	for id, now := range x.owners {
		was, known := x.before[id]
		if _, listed := x.uids[was.pod]; !known || was.pod == now.pod || was.shared || now.shared || !listed {
			continue
		}
		from, to := indexOf(pods, now.pod), indexOf(pods, was.pod)
		var moved *pleg.Container
		pods[from], moved = take(pods[from], id)
		if moved == nil { // it is a sandbox: only containers are put back
			continue
		}
		back := *pods[to]
		back.Containers = append(slices.Clone(back.Containers), moved)
		pods[to] = &back
		x.owners[id] = was
		bad = append(bad, badItem{
			podUID: now.pod, pod: pods[from].Namespace + "/" + pods[from].Name, id: id, container: moved.Name,
			reason: "it was in pod " + string(was.pod) + " before, and stays there",
		})
	}
	return pods, bad
}

func indexOf(pods []*pleg.Pod, uid pleg.PodUID) int {
	return slices.IndexFunc(pods, func(pod *pleg.Pod) bool { return pod.UID == uid })
}

// take returns the pod without a container, and the container; nil if it is not in the pod.
func take(pod *pleg.Pod, id pleg.ContainerID) (*pleg.Pod, *pleg.Container) {
	i := slices.IndexFunc(pod.Containers, func(c *pleg.Container) bool { return c.ID == id })
	if i < 0 {
		return pod, nil
	}
	rest := *pod
	rest.Containers = slices.Concat(pod.Containers[:i], pod.Containers[i+1:])
	return &rest, pod.Containers[i]
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
