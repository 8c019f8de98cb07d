package promises

import (
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// part contains the events between two Gaps: after each Gap the stream starts again.
type part struct {
	*Stream
	events        []pleg.Event
	at            int // the index of the part's first event in the stream
	replay        bool
	first, latest bool
	// end is the Gap behind it, if any.
	end pleg.Event
}

func (s *Stream) parts() (parts []part) {
	p := part{Stream: s, replay: s.Replay, first: true}
	for i, ev := range s.Events {
		if ev.Type == pleg.Gap && ev.Reason != pleg.Stopped {
			p.events, p.end = s.Events[p.at:i], ev
			parts = append(parts, p)
			p = part{Stream: s, replay: true, at: i + 1}
		}
	}
	p.events, p.latest = s.Events[p.at:], true
	if last := p.last(); last.Type == pleg.Gap {
		p.end = last
	}
	return append(parts, p)
}

// each returns a check that applies a promise to each part of a stream.
func each(kept func(part) error) func(*Stream) error {
	return func(s *Stream) error {
		for _, p := range s.parts() {
			if err := kept(p); err != nil {
				return err
			}
		}
		return nil
	}
}

// resumes reports whether the subscriber resumed at its position.
func (s *Stream) resumes() bool {
	return s.After.Epoch != "" && s.After.Epoch == s.Epoch && s.firstGap().Type == ""
}

// firstGap returns the Gap that the stream begins with, if any.
func (s *Stream) firstGap() pleg.Event {
	if len(s.Events) > 0 && s.Events[0].Type == pleg.Gap && s.Events[0].Reason != pleg.Stopped {
		return s.Events[0]
	}
	return pleg.Event{}
}

// rebuilds reports whether the subscriber got the whole state.
func (s *Stream) rebuilds() bool {
	return len(s.Types) == 0 && !s.Unread && (s.Replay || !s.resumes())
}

func (s *Stream) wants(ev pleg.Event) bool {
	return s.wantsType(ev.Type) &&
		(s.Wants == nil || s.Wants(Pod{Namespace: ev.PodNamespace, Name: ev.PodName}, Container{Sandbox: ev.Sandbox, Name: ev.ContainerName}))
}

func (s *Stream) wantsType(t pleg.EventType) bool {
	switch {
	case len(s.Types) > 0:
		return slices.Contains(s.Types, t)
	case t == pleg.NetworkSetupCompleted || t == pleg.NetworkFailed:
		return s.Network
	}
	return EventSteps[t] != NoStep || t == pleg.PodSync
}

// live returns the events of pods that are not replayed.
func (p part) live() (events []pleg.Event) {
	for _, ev := range p.events {
		if ev.PodUID != "" && !ev.Replayed {
			events = append(events, ev)
		}
	}
	return events
}

// last returns the last event or mark.
func (p part) last() pleg.Event {
	if len(p.events) == 0 {
		return pleg.Event{}
	}
	return p.events[len(p.events)-1]
}

// epoch returns the epoch of the whole part. The marks of a fleet carry none, and a merged replay
// may contain events of the next epoch.
func (p part) epoch() string {
	if p.Epoch != "" {
		return p.Epoch
	}
	if p.first && p.known.last.Epoch != "" {
		return p.known.last.Epoch
	}
	epoch := ""
	for _, ev := range p.events {
		switch {
		case p.Merged && !ev.Replayed && ev.Epoch != "":
			return ev.Epoch
		case epoch == "":
			epoch = ev.Epoch
		}
	}
	return epoch
}

// nextEpoch returns the pods in a merged replay that were read while their node began again: their
// events are of an epoch that follows the epoch of the part.
func (p part) nextEpoch() map[pleg.PodUID]string {
	pods, epoch := make(map[pleg.PodUID]string), p.epoch()
	if !p.Merged {
		return nil
	}
	for _, ev := range p.events {
		had := func(earlier pleg.Event) bool { return earlier.Epoch == ev.Epoch }
		if ev.Replayed && ev.Epoch != epoch && !slices.ContainsFunc(p.Events[:p.at], had) {
			pods[ev.PodUID] = ev.Epoch
		}
	}
	return pods
}

// published returns everything that was published in the part's epoch, if it is known.
func (p part) published() []pleg.Event {
	if p.Published == nil || p.epoch() == "" {
		return nil
	}
	return p.Published(p.epoch())
}

// publishedIn returns the event that was published in an epoch with a number.
func (p part) publishedIn(epoch string, seq uint64) (ev pleg.Event, ok bool) {
	all := p.Published(epoch)
	i := slices.IndexFunc(all, func(ev pleg.Event) bool { return ev.PodUID != "" && ev.Seq == seq })
	if i < 0 {
		return pleg.Event{}, false
	}
	return all[i], true
}

// found reports whether an event may belong to the state that the pipeline found when it began,
// which is replayed for everybody.
func (s *Stream) found(ev pleg.Event) bool {
	if s.Published == nil {
		return !s.Replay && s.After.Epoch == ""
	}
	of, known := part{Stream: s}.publishedIn(ev.Epoch, ev.Seq)
	return known && of.Replayed
}

func describe(ev pleg.Event) string {
	return fmt.Sprintf("%d %s of %s/%s %s %.12s, observed %s", ev.Seq, ev.Type, ev.PodNamespace, ev.PodName, ev.ContainerName,
		ev.ContainerID, ev.ObservedAt.Format("15:04:05.000000000"))
}
