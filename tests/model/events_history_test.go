package model_test

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// lifeEvent is one step of one container or sandbox, which a CRI event announces.
type lifeEvent struct {
	at                 time.Duration
	uid                pleg.PodUID
	container, sandbox pleg.ContainerID
	state              pleg.State
	removed            bool
}

// newEventHistory returns the history of a seed in single steps, so that no two things
// happen at once, and all of these steps.
func newEventHistory(seed uint64) (*history, []lifeEvent) {
	h := newHistory(seed)
	var all []lifeEvent
	for _, uid := range h.uids() {
		s := &stepper{uid: uid, life: []version{{}}}
		for _, v := range h.pods[uid][1:] {
			s.stepTo(v)
		}
		h.pods[uid] = s.life
		all = append(all, s.events...)
	}
	return h, all
}

// stepper takes a pod from version to version in single steps.
type stepper struct {
	uid    pleg.PodUID
	life   []version
	events []lifeEvent

	next time.Duration
	now  version
}

// stepTo takes the steps to a version in the order of a runtime: exits, then removals, then
// what is new.
func (s *stepper) stepTo(v version) {
	s.next = max(v.from, s.next)
	for _, c := range slices.Clone(s.now.containers) {
		if to := in(v.containers, c.ID); to == nil && c.State == pleg.StateRunning || to != nil && to.State == pleg.StateExited {
			s.move(c.ID, pleg.StateExited)
		}
	}
	for _, c := range slices.Clone(s.now.sandboxes) {
		if to := in(v.sandboxes, c.ID); to == nil || to.State == pleg.StateExited {
			s.move(c.ID, pleg.StateExited)
		}
	}
	for _, c := range slices.Concat(s.now.containers, s.now.sandboxes) {
		if in(v.containers, c.ID) == nil && in(v.sandboxes, c.ID) == nil {
			s.remove(c.ID)
		}
	}
	for _, c := range slices.Backward(v.sandboxes) {
		if in(s.now.sandboxes, c.ID) == nil {
			s.add(&s.now.sandboxes, c, c.ID, pleg.StateRunning)
		}
	}
	for _, c := range slices.Backward(v.containers) {
		if in(s.now.containers, c.ID) == nil {
			s.add(&s.now.containers, c, s.now.sandboxes[0].ID, pleg.StateCreated)
		}
		s.move(c.ID, c.State)
	}
}

func in(list []pleg.Container, id pleg.ContainerID) *pleg.Container {
	i := slices.IndexFunc(list, func(c pleg.Container) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (s *stepper) add(list *[]pleg.Container, c pleg.Container, sandbox pleg.ContainerID, state pleg.State) {
	c.State, c.CreatedAt = state, time.Unix(0, int64(s.next))
	if c.ID != sandbox {
		c.SandboxID = sandbox
	}
	*list = slices.Insert(slices.Clone(*list), 0, c)
	s.record(c, false)
}

// move sets the state of a container, unless it has it already.
func (s *stepper) move(id pleg.ContainerID, state pleg.State) {
	s.now.containers, s.now.sandboxes = slices.Clone(s.now.containers), slices.Clone(s.now.sandboxes)
	c := in(s.now.containers, id)
	if c == nil {
		c = in(s.now.sandboxes, id)
	}
	if c.State != state {
		c.State = state
		s.record(*c, false)
	}
}

func (s *stepper) remove(id pleg.ContainerID) {
	for _, list := range []*[]pleg.Container{&s.now.containers, &s.now.sandboxes} {
		if c := in(*list, id); c != nil {
			gone := *c
			*list = slices.DeleteFunc(slices.Clone(*list), func(c pleg.Container) bool { return c.ID == id })
			s.record(gone, true)
			return
		}
	}
}

// record records the step.
func (s *stepper) record(c pleg.Container, removed bool) {
	s.now.from = s.next
	s.life = append(s.life, s.now)
	if removed {
		c.State = pleg.StateExited // as events say
	}
	sandbox := c.SandboxID
	if sandbox == "" {
		sandbox = c.ID
	}
	s.events = append(s.events, lifeEvent{
		at: s.next, uid: s.uid, container: c.ID, sandbox: sandbox, state: c.State, removed: removed,
	})
	s.next++
}

// hint returns the CRI event of a lifeEvent, with the sandbox as it was then.
func (h *history) hint(e lifeEvent, start time.Time) pleg.Hint {
	v := h.at(e.uid, e.at)
	other := func(c pleg.Container) bool { return c.ID != e.sandbox && c.SandboxID != e.sandbox }
	pod := newPod(e.uid, slices.DeleteFunc(slices.Clone(v.containers), other), slices.DeleteFunc(slices.Clone(v.sandboxes), other))
	return pleg.Hint{
		UID: e.uid, At: start.Add(e.at), Container: e.container, Sandbox: e.sandbox, State: e.state, Removed: e.removed,
		Pod: pod, Status: h.inspect(pod, e.at),
	}
}
