package faults_test

import (
	"maps"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// ledger is how far each container and sandbox that there ever was has come: 1 it
// runs, 2 it has exited, 3 it is removed.
type ledger struct {
	pods  map[string]bool
	stage map[pleg.ContainerID]int
}

var stages = map[pipeline.EventType]int{
	pipeline.ContainerStarted: 1, pipeline.ContainerDied: 2, pipeline.ContainerRemoved: 3,
}

func newLedger() *ledger {
	return &ledger{pods: make(map[string]bool), stage: make(map[pleg.ContainerID]int)}
}

// note takes down what there is now.
func (l *ledger) note(pods []simruntime.Pod) {
	now := make(map[pleg.ContainerID]int)
	for _, p := range pods {
		l.pods[p.UID] = true
		for _, s := range p.Sandboxes {
			now[pleg.ContainerID(s.ID)] = map[bool]int{true: 1, false: 2}[s.Ready]
		}
		for _, c := range p.Containers {
			now[pleg.ContainerID(c.ID)] = map[simruntime.State]int{simruntime.Running: 1, simruntime.Exited: 2}[c.State]
		}
	}
	for id := range l.stage {
		l.stage[id] = 3
	}
	maps.Copy(l.stage, now)
}

// promise is what the events of a case have to keep to.
type promise struct {
	// all: no event may be missing, even of what came and went unlisted.
	all bool
	// repeats: a container whose state was not known may be told once more to have
	// started or died.
	repeats bool
	// lies: the runtime has said that containers are gone which were not, and
	// that there is one which never was. They may then begin anew.
	lies bool
}

// check demands the order of each container's events, and their end.
func (l *ledger) check(t *testing.T, events []pipeline.Event, p promise) {
	t.Helper()
	reached := make(map[pleg.ContainerID]int)
	count := make(map[pleg.ContainerID]int)
	for _, ev := range events {
		if ev.Missed > 0 {
			t.Errorf("events were missed: %+v", ev)
		}
		stage, ok := stages[ev.Type]
		if !ok {
			continue
		}
		if _, ok := l.stage[ev.ContainerID]; !ok {
			if !p.lies {
				t.Errorf("event of a container that never was: %+v", ev)
			}
			continue
		}
		before := reached[ev.ContainerID]
		if p.lies && before == 3 {
			before = 0
		}
		if stage < before || stage == before && !p.repeats {
			t.Errorf("event %+v after one of stage %d", ev, before)
		}
		reached[ev.ContainerID] = stage
		count[ev.ContainerID]++
	}
	for id, stage := range l.stage {
		switch {
		case reached[id] != stage && (p.all || reached[id] != 0 || stage != 3):
			t.Errorf("the events of %s go to stage %d, its life to %d", id, reached[id], stage)
		case p.all && count[id] != stage && !p.repeats:
			t.Errorf("%d events of %s, which came to stage %d", count[id], id, stage)
		}
	}
}
