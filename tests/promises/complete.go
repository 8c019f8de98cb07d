package promises

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// complete: each published event comes, a Gap counts it, or the replay includes it. The events of
// each container end with the last step of its life.
func (p part) complete() error {
	known := len(p.published()) > 0
	for _, ev := range p.events {
		if ev.Type == pleg.PodSync && p.NoSync || ev.PodUID != "" && ev.Missed > 0 {
			return fmt.Errorf("%s for %d missed events", describe(ev), ev.Missed)
		}
	}
	if known {
		if err := p.delivered(); err != nil {
			return err
		}
	} else if err := p.contiguous(); err != nil {
		return err
	}
	if !p.latest {
		return nil
	}
	lives, _ := p.lives() // Life reports its error
	if p.History != nil && p.Wants == nil && p.rebuilds() {
		if err := p.wholeLives(lives); err != nil {
			return err
		}
	}
	if p.Truth != nil && p.rebuilds() {
		return p.present(lives)
	}
	return nil
}

// due returns for each pod the numbers of the events that must be delivered or counted as missed.
func (p part) due() map[pleg.PodUID][]uint64 {
	after, until := p.After.Seq, uint64(math.MaxUint64)
	live := p.live()
	switch mark := slices.IndexFunc(p.events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced }); {
	case p.Merged && len(live) == 0:
		return nil
	case p.Merged:
		after, until = live[0].Seq-1, live[len(live)-1].Seq
	case p.replay:
		after = p.events[mark].Seq
	case p.first && p.known.last.Seq > 0:
		after = p.known.last.Seq
	}
	switch {
	case p.Merged:
	case p.end.Type != "" && p.end.Reason != pleg.OtherEpoch:
		until = p.end.Seq - p.end.Missed // the events that the Gap counts are later
	case !p.latest:
		until = p.last().Seq
	}
	due := make(map[pleg.PodUID][]uint64)
	published, replayed := p.published(), p.replayedUpTo()
	for _, ev := range published {
		if ev.Seq > max(after, replayed[ev.PodUID]) && ev.Seq <= until && p.wants(ev) {
			due[ev.PodUID] = append(due[ev.PodUID], ev.Seq)
		}
	}
	return due
}

// delivered requires each event that is due, in the order of the numbers of each pod.
func (p part) delivered() error {
	if p.replay && !p.Merged && !slices.ContainsFunc(p.events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced }) {
		return nil // the Gap behind it counts from the state on
	}
	due := p.due()
	for _, ev := range p.events {
		switch numbers := due[ev.PodUID]; {
		case ev.PodUID == "" || len(numbers) == 0:
		case numbers[0] == ev.Seq:
			due[ev.PodUID] = numbers[1:]
		case numbers[0] < ev.Seq && !ev.Replayed:
			return fmt.Errorf("%s comes, but number %d of this pod is missing", describe(ev), numbers[0])
		}
	}
	maps.DeleteFunc(due, func(_ pleg.PodUID, numbers []uint64) bool { return len(numbers) == 0 })
	if len(due) > 0 {
		return fmt.Errorf("events are missing: %v", due)
	}
	return nil
}

// replayedUpTo returns for each pod of a merged replay the number of the last event that the
// replay includes. An event of the next epoch includes all.
func (p part) replayedUpTo() map[pleg.PodUID]uint64 {
	if !p.Merged {
		return nil
	}
	replay, now := make(map[pleg.PodUID]map[pleg.ContainerID]uint64), make(map[pleg.PodUID]map[pleg.ContainerID]uint64)
	set := func(pods map[pleg.PodUID]map[pleg.ContainerID]uint64, ev pleg.Event) {
		if pods[ev.PodUID] == nil {
			pods[ev.PodUID] = make(map[pleg.ContainerID]uint64)
		}
		switch pods[ev.PodUID][ev.ContainerID] = ev.Seq; ev.Type {
		case pleg.ContainerStarted, pleg.ContainerDied:
		default:
			delete(pods[ev.PodUID], ev.ContainerID)
		}
	}
	for _, ev := range p.events {
		if ev.Replayed {
			set(replay, ev)
		}
	}
	upTo := make(map[pleg.PodUID]uint64)
	for _, ev := range p.published() {
		if EventSteps[ev.Type] != NoStep {
			set(now, ev)
		}
		if maps.Equal(now[ev.PodUID], replay[ev.PodUID]) {
			upTo[ev.PodUID] = ev.Seq
		}
	}
	for uid := range p.nextEpoch() {
		upTo[uid] = math.MaxUint64
	}
	return upTo
}

// contiguous requires every number of a node of a fleet, unless a replay may have included some.
func (p part) contiguous() error {
	live := p.live()
	if !p.Merged || slices.ContainsFunc(p.events, func(ev pleg.Event) bool { return ev.Replayed }) {
		return nil
	}
	for i := range live[min(1, len(live)):] {
		if live[i+1].Seq != live[i].Seq+1 {
			return fmt.Errorf("%s comes after number %d", describe(live[i+1]), live[i].Seq)
		}
	}
	return nil
}

// wholeLives compares the events of each container with its history. Unless All is set, or after a
// Gap, a container that came and went may be without events.
func (p part) wholeLives(lives map[container]life) error {
	all := p.All && p.first
	for c := range lives {
		if !p.History.has(c) {
			return fmt.Errorf("container %s of pod %s never existed", c.id, c.pod)
		}
	}
	for c, step := range p.History.steps {
		switch got := lives[c]; {
		case got.step != step && (all || got.step != NoStep || step != Removed):
			return fmt.Errorf("the events of %s go to step %d, its life to step %d%s", c.id, got.step, step, p.of(c.pod))
		case all && got.count != int(step) && !p.Repeats:
			return fmt.Errorf("%s has %d events, want %d%s", c.id, got.count, step, p.of(c.pod))
		}
	}
	return nil
}

// present compares the last event of each container with the truth.
func (p part) present(lives map[container]life) error {
	for uid, pod := range p.Truth {
		for id, now := range pod.Containers {
			got := lives[container{uid, id}]
			if p.Wants != nil && !p.Wants(pod, now) {
				continue
			}
			if want := StateSteps[now.State]; got.step != want {
				return fmt.Errorf("container %.12s of pod %s is %v, its last event was step %d%s", id, uid, now.State, got.step, p.of(uid))
			}
			if !now.Sandbox && got.step == Died && got.exit != nil && *got.exit != now.ExitCode {
				return fmt.Errorf("container %.12s of pod %s has exit code %d, its event had %d", id, uid, now.ExitCode, *got.exit)
			}
		}
	}
	for c, got := range lives {
		if _, there := p.Truth[c.pod].Containers[c.id]; !there && got.step != Removed {
			return fmt.Errorf("container %.12s of pod %s is gone, its last event was step %d%s", c.id, c.pod, got.step, p.of(c.pod))
		}
	}
	return nil
}

// replayed: the replay and the events before Synced add up to the state at the number of Synced.
func (p part) replayed() error {
	end := slices.IndexFunc(p.events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
	if end < 0 || !p.replay {
		return nil
	}
	mark := p.events[end].Seq
	published := slices.DeleteFunc(slices.Clone(p.published()), func(ev pleg.Event) bool { return ev.Seq > mark })
	got, want := lastOfEach(p.events[:end], p.wants), lastOfEach(published, p.wants)
	until := uint64(0) // the last number of the replay: events that are dropped later change no other event
	if p.at > 0 {
		until = p.Events[p.at-1].Seq // of the Gap
	}
	for _, ev := range p.events[:end] {
		if ev.Replayed && !p.found(ev) {
			until = max(until, ev.Seq)
		}
	}
	dropped := func(t pleg.EventType, of container) bool {
		return !p.wantsType(t) && slices.ContainsFunc(published, func(ev pleg.Event) bool {
			return ev.Type == t && ev.Seq > until && of == container{ev.PodUID, ev.ContainerID}
		})
	}
	for of := range got {
		if _, there := want[of]; !there && dropped(pleg.ContainerRemoved, of) {
			delete(got, of)
		}
	}
	same := func(a, b pleg.Event) bool {
		return Equal(a, b) || a.Seq == b.Seq && dropped(pleg.ContainerCorrected, container{a.PodUID, a.ContainerID})
	}
	if !maps.EqualFunc(got, want, same) {
		return fmt.Errorf("at %d: %d containers, want %d: got %v, want %v", mark, len(got), len(want), got, want)
	}
	return nil
}

// corrected returns an event with the fields of a later ContainerCorrected, as a replay contains
// it.
func corrected(ev, by pleg.Event) pleg.Event {
	ev.Image, ev.StartedAt, ev.ExitCode, ev.Reason, ev.FinishedAt = by.Image, by.StartedAt, by.ExitCode, by.Reason, by.FinishedAt
	return ev
}

// correctedTo returns a published event with those of its corrections that make it the event that was
// replayed, or with all of them.
func (p part) correctedTo(replayed, ev pleg.Event) pleg.Event {
	for _, by := range p.published() {
		if by.Type == pleg.ContainerCorrected && by.Seq > ev.Seq && by.PodUID == ev.PodUID && by.ContainerID == ev.ContainerID {
			if ev = corrected(ev, by); Equal(replayed, ev) {
				break
			}
		}
	}
	return ev
}

// lastOfEach returns the last event of each container that is there.
func lastOfEach(events []pleg.Event, wants func(pleg.Event) bool) map[container]pleg.Event {
	last := make(map[container]pleg.Event)
	for _, ev := range events {
		ev.Replayed = true
		switch of := (container{ev.PodUID, ev.ContainerID}); {
		case ev.Type == pleg.ContainerRemoved:
			delete(last, of)
		case ev.Type == pleg.ContainerCorrected:
			if was, there := last[of]; there {
				last[of] = corrected(was, ev)
			}
		case EventSteps[ev.Type] != NoStep && wants(ev):
			last[of] = ev
		}
	}
	return last
}
