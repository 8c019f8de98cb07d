package kit

import (
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// Promise is what a subscriber's stream keeps, beside the order of each container's
// steps.
type Promise struct {
	// All: every step of every container is in the stream, even of containers that
	// no list showed.
	All bool
	// MayMiss: events may be missed; PodSyncs with Missed stand for them.
	MayMiss bool
	// NoSync: no PodSync comes.
	NoSync bool
	// Repeats: a container may start or die twice in a row, because its state was
	// not known meanwhile.
	Repeats bool
	// Lies: the runtime reported containers as removed that were not, and
	// containers that never existed. A removed container may start again.
	Lies bool
}

// life is what the events of one container said.
type life struct {
	pod   pleg.PodUID
	step  promises.Step
	count int // of its events
	exit  *int32
	// loose: events of its pod were missed, so steps may be missing.
	loose bool
	// absent counts the audits since the container is gone.
	absent int
}

// StreamCheck checks the events of one subscriber as they come: sequence numbers
// grow, the observations of a pod are in order, and no container goes back in its
// life or takes a step twice. It is not safe for concurrent use.
type StreamCheck struct {
	Promise
	// Problem is called for each broken promise.
	Problem func(format string, args ...any)

	lives    map[pleg.ContainerID]*life
	loose    map[pleg.PodUID]bool
	observed map[pleg.PodUID]time.Time
	recent   map[pleg.PodUID][]pleg.Event // the last events, for problems
	lastSeq  uint64
}

// NewStreamCheck returns the check of a stream without events.
func NewStreamCheck(p Promise, problem func(format string, args ...any)) *StreamCheck {
	c := &StreamCheck{Promise: p, Problem: problem}
	c.Reset()
	return c
}

// Reset forgets all events, because a replay follows.
func (c *StreamCheck) Reset() {
	c.lives = make(map[pleg.ContainerID]*life)
	c.loose = make(map[pleg.PodUID]bool)
	c.observed = make(map[pleg.PodUID]time.Time)
	c.recent = make(map[pleg.PodUID][]pleg.Event)
	c.lastSeq = 0
}

// Reconnected must be called when a connection is lost. A resumed stream repeats
// repairs, so their numbers may go back.
func (c *StreamCheck) Reconnected() {
	if c.MayMiss {
		c.lastSeq = 0
	}
}

// Add checks an event.
func (c *StreamCheck) Add(ev pleg.Event) {
	if ev.Type == pleg.Gap {
		c.Reset()
		return
	}
	mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
	if ev.Seq < c.lastSeq || ev.Seq == c.lastSeq && !mark {
		c.Problem("%s: number %d after %d", describe(ev), ev.Seq, c.lastSeq)
	}
	c.lastSeq = ev.Seq
	if mark {
		return
	}
	if ev.ObservedAt.Before(c.observed[ev.PodUID]) {
		c.Problem("%s: observed earlier than the previous event of the pod%s", describe(ev), c.before(ev))
	}
	c.observed[ev.PodUID] = ev.ObservedAt
	if ev.Type == pleg.PodSync {
		c.addSync(ev)
	} else {
		c.addStep(ev)
	}
	recent := append(c.recent[ev.PodUID], ev)
	c.recent[ev.PodUID] = recent[max(0, len(recent)-maxRecent):]
}

func (c *StreamCheck) addSync(ev pleg.Event) {
	if ev.Missed > 0 && !c.MayMiss {
		c.Problem("%s: %d events were missed", describe(ev), ev.Missed)
	}
	if c.NoSync {
		c.Problem("%s: no reason for it", describe(ev))
	}
	if ev.Missed == 0 {
		return
	}
	c.loose[ev.PodUID] = true
	for _, l := range c.lives {
		l.loose = l.loose || l.pod == ev.PodUID
	}
}

func (c *StreamCheck) addStep(ev pleg.Event) {
	next, ok := promises.EventSteps[ev.Type]
	if !ok {
		c.Problem("%s: not subscribed to", describe(ev))
		return
	}
	l := c.life(ev.PodUID, ev.ContainerID)
	if c.Lies && l.step == promises.Removed {
		l.step = promises.NoStep
	}
	if next < l.step || next == l.step && !c.Repeats || next == promises.Removed && l.step != promises.Died && !l.loose {
		c.Problem("%s: it follows step %d of the same container%s", describe(ev), l.step, c.before(ev))
	}
	l.step, l.absent = next, 0
	l.count++
	if next == promises.Died {
		l.exit = ev.ExitCode
	}
}

func (c *StreamCheck) life(uid pleg.PodUID, id pleg.ContainerID) *life {
	l := c.lives[id]
	if l == nil {
		l = &life{pod: uid, loose: c.loose[uid]}
		c.lives[id] = l
	}
	return l
}

// maxRecent is how many events of a pod are kept for problems.
const maxRecent = 30

// before lists the events of the same pod that came before ev.
func (c *StreamCheck) before(ev pleg.Event) string {
	var b strings.Builder
	for _, e := range c.recent[ev.PodUID] {
		fmt.Fprintf(&b, "\n  %d %s, observed %s", e.Seq, describe(e), e.ObservedAt.Format("15:04:05.000000000"))
		if e.Uninspected {
			b.WriteString(", uninspected")
		}
	}
	return b.String()
}

func describe(ev pleg.Event) string {
	return fmt.Sprintf("%s of %s/%s %s %.12s", ev.Type, ev.PodNamespace, ev.PodName, ev.ContainerName, ev.ContainerID)
}

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
	want := promises.StateSteps[now.State]
	l := c.life(uid, id)
	if l.step != want && !l.loose {
		c.Problem("container %.12s of pod %s is %v, its last event was step %d", id, uid, now.State, l.step)
	}
	l.step, l.loose = want, false
	if !now.Sandbox && want == promises.Died && l.exit != nil && *l.exit != now.ExitCode {
		c.Problem("container %.12s of pod %s has exit code %d, its event had %d", id, uid, now.ExitCode, *l.exit)
		l.exit = nil // report it once
	}
}

func (c *StreamCheck) auditRemoved(id pleg.ContainerID, l *life) {
	if l.absent++; l.absent < forgetAfter {
		return
	}
	if l.step != promises.Removed && !l.loose {
		c.Problem("container %.12s of pod %s is gone, its last event was step %d", id, l.pod, l.step)
	}
	delete(c.lives, id)
}
