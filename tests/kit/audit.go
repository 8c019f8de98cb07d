package kit

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// forgetAfter is the number of audits after which a removed container is forgotten.
// Until then its late events are still checked.
const forgetAfter = 3

// Audit compares the last event of each container with the truth, once the
// subscriber's [NodeState] equals it: the step must be right, and so must the exit
// code; a container that is gone must be reported as removed. Steps that were
// missed are taken from the truth. Only containers that wants accepts are compared.
func (c *StreamCheck) Audit(truth Truth, wants func(Pod, Container) bool) {
	known := make(map[pleg.ContainerID]bool)
	for uid, pod := range truth {
		for id, container := range pod.Containers {
			if known[id] = true; wants == nil || wants(pod, container) {
				c.auditContainer(uid, id, container)
			}
		}
	}
	for id, l := range c.lives {
		if !known[id] {
			c.auditRemoved(id, l)
		}
	}
	for uid := range c.observed {
		if _, ok := truth[uid]; !ok {
			delete(c.observed, uid)
			delete(c.recent, uid)
		}
	}
	clear(c.loose)
}

func (c *StreamCheck) auditContainer(uid pleg.PodUID, id pleg.ContainerID, now Container) {
	want := StateSteps[now.State]
	l := c.life(uid, id)
	if l.step != want && !l.loose {
		c.Problem("container %.12s of pod %s is %v, its last event was step %d", id, uid, now.State, l.step)
	}
	l.step, l.loose = want, false
	if !now.Sandbox && want == Died && l.exit != nil && *l.exit != now.ExitCode {
		c.Problem("container %.12s of pod %s has exit code %d, its event had %d", id, uid, now.ExitCode, *l.exit)
		l.exit = nil // report it once
	}
}

func (c *StreamCheck) auditRemoved(id pleg.ContainerID, l *life) {
	if l.absent++; l.absent < forgetAfter {
		return
	}
	if l.step != Removed && !l.loose {
		c.Problem("container %.12s of pod %s is gone, its last event was step %d", id, l.pod, l.step)
	}
	delete(c.lives, id)
}
