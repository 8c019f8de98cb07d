package soak

import (
	"sync"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// counts are what a subscriber got.
type counts struct {
	Events   int    `json:"events"`
	Repairs  int    `json:"repairs"`
	Missed   uint64 `json:"missed"`
	Gaps     int    `json:"gaps"`
	Visits   int    `json:"visits"`
	Breaks   int    `json:"breaks"`
	Compared int    `json:"compared"`
}

// view is what one subscriber knows of the node, and the check of its stream.
type view struct {
	mu     sync.Mutex
	state  kit.NodeState
	check  *kit.StreamCheck
	events int
	visits int
	breaks int
	audits int
}

func (v *view) add(ev pleg.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ev.PodUID != "" {
		v.events++
	}
	v.check.Add(ev)
	v.state.Add(ev)
}

func (v *view) diff(truth Truth) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.Diff(truth)
}

func (v *view) audit(truth Truth) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.audits++
	v.check.Audit(truth, v.state.Wants)
}

// startVisit counts a watch. If it begins with a replay, the view is reset.
func (v *view) startVisit(replay bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.visits++
	if replay {
		v.state.Reset()
		v.check.Reset()
	}
}

func (v *view) disconnected() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breaks++
	v.check.Reconnected()
}

func (v *view) counts() counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	return counts{
		Events: v.events, Repairs: v.state.Repairs, Missed: v.state.Missed, Gaps: v.state.Gaps,
		Visits: v.visits, Breaks: v.breaks, Compared: v.audits,
	}
}
