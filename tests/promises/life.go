package promises

import (
	"fmt"
	"maps"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Step is a step in the life of a container or sandbox.
type Step int

// The steps that events report, in order. Before them a container is created.
const (
	NoStep Step = iota
	Started
	Died
	Removed
)

// EventSteps are the steps that events report.
var EventSteps = map[pleg.EventType]Step{pleg.ContainerStarted: Started, pleg.ContainerDied: Died, pleg.ContainerRemoved: Removed}

// StateSteps are the steps that containers in a state have reached.
var StateSteps = map[pleg.State]Step{pleg.StateRunning: Started, pleg.StateExited: Died}

type container struct {
	pod pleg.PodUID
	id  pleg.ContainerID
}

// life is the story of one container in its events.
type life struct {
	step  Step
	count int // of its events
	exit  *int32
}

func (p part) life() error {
	_, err := p.lives()
	return err
}

// lives returns the life of each container. Its error says that a container starts, dies or is
// removed twice, in another order, or is removed without having died.
func (p part) lives() (lives map[container]life, broken error) {
	lives = make(map[container]life)
	if p.first {
		maps.Copy(lives, p.known.lives)
	}
	for i, ev := range p.events {
		next, of := EventSteps[ev.Type], container{ev.PodUID, ev.ContainerID}
		if next == NoStep || p.Lies && !p.History.has(of) {
			continue
		}
		l := lives[of]
		if l.step == Removed && p.Lies {
			l.step = NoStep
		}
		unseen := len(p.Types) > 0 || l.step == NoStep && (p.first && p.After.Epoch != "" || p.Merged)
		if (next < l.step || next == l.step && !p.Repeats || next == Removed && l.step != Died && !unseen) && broken == nil {
			broken = fmt.Errorf("%s follows step %d of the same container%s", describe(ev), l.step, part{Stream: p.Stream, events: p.events[:i]}.of(ev.PodUID))
		}
		l.step, l.exit = next, ev.ExitCode
		l.count++
		lives[of] = l
	}
	return lives, broken
}

// of lists the last events of a pod, for a problem.
func (p part) of(uid pleg.PodUID) string {
	var last []string
	for _, ev := range p.events {
		if ev.PodUID == uid {
			last = append(last, "\n  "+describe(ev))
		}
	}
	return strings.Join(last[max(0, len(last)-30):], "")
}

// History is the last step of each container and sandbox that ever existed.
type History struct{ steps map[container]Step }

// NewHistory returns an empty history.
func NewHistory() *History { return &History{steps: make(map[container]Step)} }

// Record adds the present containers and sandboxes. It must be called after every change.
func (h *History) Record(truth Truth) {
	for c := range h.steps {
		h.steps[c] = Removed
	}
	for uid, pod := range truth {
		for id, c := range pod.Containers {
			h.steps[container{uid, id}] = StateSteps[c.State]
		}
	}
}

func (h *History) has(c container) bool {
	_, known := h.steps[c]
	return known
}
