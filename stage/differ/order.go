package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// maxRemoved is the number of removed containers from which the next list, which
	// forgets them, comes sooner. Twice as many are kept while lists fail.
	maxRemoved = 4096
	// removedFor is how long an event that reports a container as removed counts more
	// than lists that still show it. containerd lists a sandbox for up to 4 ms after that
	// event; but no event may hide a container forever.
	removedFor = 10 * time.Second
)

// known is what the observations of one pod have shown, joined. It has no clock.
//
//   - A list that began after everything known was answered replaces it.
//   - If the intervals of two observations overlap, they are joined: each container is as
//     far in its life as any of them shows. An event always joins.
//   - A removed container is known as removed until a list of all pods that began later
//     lacks it.
type known struct {
	// pod is the pod without its removed containers; nil if nothing is left.
	pod *pleg.Pod
	// removed are the containers that are gone; nil if there are none.
	removed map[pleg.ContainerID]removal
	// listed is when the newest list began. A container that it lacks and that was not
	// known then is not taken from anything older.
	listed time.Time
	// answered is when the newest answer to a list of this pod alone came, heard when the
	// newest event did.
	answered, heard time.Time
	// asOf is a time up to which everything that happened to the pod is known.
	asOf time.Time
}

// removals bound what is remembered of the removed containers of all pods.
type removals struct {
	count int
	// lost is when the newest one was removed that is not remembered.
	lost time.Time
}

// removal is when the answer came that a container is gone, and whether that was an event.
type removal struct {
	at      time.Time
	byEvent bool
}

// seen is when an observation was made: its statuses were gathered after began. A list was
// answered at answered, an event arrived then. The runtime dated an event made.
type seen struct{ began, made, answered time.Time }

// verdict is what became of an observation.
type verdict uint8

const (
	// agreed: what is known now is at least as new as the observation.
	agreed verdict = iota
	// outdated: a list that began later came before it, and it shows nothing else.
	outdated
	// disagreed: something that is known disagrees with it, and either may be newer. The
	// pod has to be listed again; what is known of it is as old as before.
	disagreed
)

// listAll applies what a list of all pods has of this one. A nil pod is gone.
func (k *known) listAll(pod *pleg.Pod, s seen, all *removals) verdict {
	return k.list(pod, s, k.answered, true, all)
}

// listAlone applies a list of this pod alone; listAnswered is the newest answer to a list of
// all pods.
func (k *known) listAlone(pod *pleg.Pod, s seen, listAnswered time.Time, all *removals) verdict {
	v := k.list(pod, s, listAnswered, false, all)
	if v != outdated {
		k.answered = later(k.answered, s.answered)
	}
	return v
}

// list applies a list. Lists of one kind come one after the other; others is the newest
// answer to one of the other kind.
func (k *known) list(pod *pleg.Pod, s seen, others time.Time, ofAll bool, all *removals) verdict {
	if s.answered.Before(k.listed) {
		return outdated
	}
	newer := s.began.After(k.heard) && s.began.After(others)
	had, asOf := k.pod, k.asOf
	j := joint{known: k, seen: s, agrees: true}
	k.keepRemoved(pod, s, newer, ofAll, all)
	switch {
	case newer && len(k.removed) == 0 && same(k.pod, pod): // the whole cost of an unchanged pod
		k.pod = pod
	case newer:
		for c := range containers(k.pod) {
			if !hasContainer(pod, c.ID) {
				k.remove(c.ID, removal{at: s.answered}, all)
			}
		}
		k.pod = j.join(nil, pod)
	default:
		k.pod = j.join(k.pod, pod)
	}
	if j.agrees {
		k.pod = pod
	}
	k.listed = later(k.listed, s.began)
	v := k.conclude(j.agrees, s)
	if j.doubt {
		v = disagreed
	}
	switch {
	case k.asOf.After(asOf):
	case !newer && v == agreed && same(had, k.pod):
		return outdated
	default:
		k.asOf = k.asOf.Add(1) // what follows comes after the bookmark of that time
	}
	return v
}

// event joins an event. whole reports whether it shows everything that is known of the pod.
func (k *known) event(h *pleg.Hint, s seen, all *removals) (v verdict, whole bool) {
	old := s.made.Before(k.listed)
	removes := h.Removed && hasContainer(k.pod, h.Container)
	if old && !removes {
		return outdated, false
	}
	shown := h.Pod
	if old || shown == nil {
		shown = &pleg.Pod{} // only the removal counts
	}
	if h.Removed {
		k.remove(h.Container, removal{s.answered, true}, all)
	}
	j := joint{known: k, seen: s, agrees: true, event: true}
	k.pod = j.join(k.pod, withName(shown, k.pod))
	k.heard = later(k.heard, s.answered)
	k.asOf = k.asOf.Add(1) // as in list
	for c := range containers(k.pod) {
		if !hasContainer(shown, c.ID) {
			if j.agrees {
				return agreed, false
			}
			return k.conclude(false, s), false
		}
	}
	return k.conclude(j.agrees, s), j.agrees
}

// conclude notes how new the pod is after an observation that agrees with what is known.
// One that does not matters only if it may be newer.
func (k *known) conclude(agrees bool, s seen) verdict {
	switch {
	case agrees:
		k.asOf = later(k.asOf, s.began)
	case k.asOf.Before(s.began):
		return disagreed
	}
	return agreed
}

// remove notes that a container is gone.
func (k *known) remove(id pleg.ContainerID, r removal, all *removals) {
	if _, ok := k.removed[id]; ok {
		return
	}
	if all.count >= 2*maxRemoved {
		all.lost = later(all.lost, r.at)
		k.listed = later(k.listed, r.at)
		return
	}
	if k.removed == nil {
		k.removed = make(map[pleg.ContainerID]removal)
	}
	k.removed[id] = r
	all.count++
}

// keepRemoved forgets the removed containers that a later list of all pods lacks, and those
// that a list brings back.
func (k *known) keepRemoved(pod *pleg.Pod, s seen, newer, ofAll bool, all *removals) {
	for id, r := range k.removed {
		listed := hasContainer(pod, id)
		if !listed && ofAll && s.began.After(r.at) || listed && newer && (!r.byEvent || s.began.Sub(r.at) >= removedFor) {
			delete(k.removed, id)
			all.count--
		}
	}
	if len(k.removed) == 0 {
		k.removed = nil
	}
}

// joint joins an observation with what is known. agrees is cleared if the result is not
// what the observation shows.
type joint struct {
	known  *known
	seen   seen
	event  bool
	agrees bool
	// doubt is set if a list shows a container that one which began later lacks: it may be
	// new or long gone.
	doubt bool
}

// join returns what is left of a pod with what an observation shows; nil if nothing is.
func (j *joint) join(have, shown *pleg.Pod) *pleg.Pod {
	if have == nil {
		have = &pleg.Pod{}
	}
	if shown == nil {
		shown = &pleg.Pod{UID: have.UID, Name: have.Name, Namespace: have.Namespace, Labels: have.Labels}
	}
	pod := *shown
	pod.Containers = j.joinContainers(have.Containers, shown.Containers, shown)
	pod.Sandboxes = j.joinContainers(have.Sandboxes, shown.Sandboxes, shown)
	if len(pod.Containers) == 0 && len(pod.Sandboxes) == 0 {
		return nil
	}
	return &pod
}

func (j *joint) joinContainers(have, news []*pleg.Container, shown *pleg.Pod) []*pleg.Container {
	var out []*pleg.Container
	for _, c := range have {
		n := containerIn(news, c.ID)
		switch _, gone := j.known.removed[c.ID]; {
		case gone:
			continue
		case n == nil: // an event shows only its sandbox
			j.agrees = j.agrees && j.event && !hasContainer(shown, c.SandboxID)
		case behind(n, c):
			j.agrees = false
		default:
			c = n
		}
		out = append(out, c)
	}
	for _, n := range news {
		_, gone := j.known.removed[n.ID]
		switch {
		case containerIn(have, n.ID) != nil && !gone:
		case gone:
			j.agrees = false
		case j.seen.made.Before(j.known.listed):
			j.agrees, j.doubt = false, true
		default:
			out = append(out, n)
		}
	}
	if j.event || len(have) > 0 {
		slices.SortStableFunc(out, func(a, b *pleg.Container) int { return b.CreatedAt.Compare(a.CreatedAt) })
	}
	return out
}

// withName returns the pod of an event with the name and the labels that are known, if the
// event does not have those of the pod's newest sandbox.
func withName(event, have *pleg.Pod) *pleg.Pod {
	if have == nil {
		return event
	}
	pod := *event
	if len(pod.Sandboxes) == 0 {
		pod.UID, pod.Name, pod.Namespace, pod.Labels = have.UID, have.Name, have.Namespace, have.Labels
	}
	if have.Labels != nil && isOlder(event.Sandboxes, have.Sandboxes) {
		pod.Labels = have.Labels
	}
	return &pod
}

// isOlder reports whether another sandbox is newer than those of an event.
func isOlder(ofEvent, others []*pleg.Container) bool {
	return len(ofEvent) > 0 && slices.ContainsFunc(others, func(s *pleg.Container) bool {
		return !slices.ContainsFunc(ofEvent, func(e *pleg.Container) bool { return !s.CreatedAt.After(e.CreatedAt) })
	})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
