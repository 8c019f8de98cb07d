package fleet

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// progress is how far a watch has come with the events of one node.
type progress struct {
	epoch string
	// seq is the number of the last event that was delivered or skipped. It counts only
	// if based is true: after a replay it is known with the next message.
	seq   uint64
	based bool
	// ahead is true if the states that were read are of an epoch that begins later in
	// the stream. Until its Gap comes, the messages are older than the states.
	ahead bool
	// gapSeq is the number of the last Gap that the replayed state includes, and after that of
	// the node's last message before it.
	gapSeq, after uint64
	// included is the number of the last event of each pod that the replayed state
	// includes.
	included map[pleg.PodUID]uint64
}

// action is what a watch does with a message.
type action int

const (
	// deliver the events that are wanted and that no replay has included.
	deliver action = iota
	// skip the message: everything in it was delivered or replayed.
	skip
	// replay the state of the node, because the message is a Gap, and then go on.
	replayGap
	// replay the state of the node, because messages before this one are missing.
	replayHole
)

// judge returns what to do with the next message of the node.
func (p *progress) judge(m message) action {
	switch {
	case m.gap && m.epoch != p.epoch:
		return replayGap
	case m.gap && (m.last <= p.gapSeq || p.based && m.last <= p.seq):
		return skip
	case m.gap:
		return replayGap
	case p.ahead:
		return skip
	case m.epoch != p.epoch:
		return replayHole
	case p.based && m.first > p.seq+1:
		return replayHole
	case p.based && m.last <= p.seq:
		return skip
	}
	return deliver
}

// advance notes that a message was delivered or skipped.
func (p *progress) advance(m message) {
	switch {
	case m.epoch != p.epoch:
	case m.gap:
		p.ahead, p.based, p.seq = false, true, max(p.seq, m.last)
	case !p.ahead:
		p.based, p.seq = true, max(p.seq, m.last)
	}
}

// isNew reports whether an event was neither delivered before nor included in a replay.
func (p *progress) isNew(ev *pleg.Event) bool {
	if p.based && ev.Seq <= p.seq {
		return false
	}
	included, ok := p.included[ev.PodUID]
	if !ok {
		return true
	}
	if ev.Seq <= included {
		return false
	}
	delete(p.included, ev.PodUID)
	return true
}
