package faults_test

import (
	"maps"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// lifecycle is the last stage of every container and sandbox of the runtime: 1
// running, 2 exited, 3 removed.
type lifecycle struct {
	pods  map[string]bool
	stage map[pleg.ContainerID]int
}

var stages = map[pipeline.EventType]int{
	pipeline.ContainerStarted: 1, pipeline.ContainerDied: 2, pipeline.ContainerRemoved: 3,
}

func newLifecycle() *lifecycle {
	return &lifecycle{pods: make(map[string]bool), stage: make(map[pleg.ContainerID]int)}
}

// record updates the stages from all pods of the runtime.
func (l *lifecycle) record(pods []simruntime.Pod) {
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

// promise is what the pipeline promises about the events under some faults.
type promise struct {
	// all: no event is missing, even of containers that no list showed.
	all bool
	// repeats: if the state of a container was unknown, its start or its death may
	// be reported once more.
	repeats bool
	// wrongIDs: the runtime denied containers that it has, and listed one that it
	// does not have. Their events may start again.
	wrongIDs bool
}

// check fails the test if events of a container are out of order, or do not end
// with the container's last stage.
func (l *lifecycle) check(t *testing.T, events []pipeline.Event, p promise) {
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
			if !p.wrongIDs {
				t.Errorf("event of an unknown container: %+v", ev)
			}
			continue
		}
		before := reached[ev.ContainerID]
		if p.wrongIDs && before == 3 {
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
			t.Errorf("the events of %s end with stage %d, its last stage is %d", id, reached[id], stage)
		case p.all && count[id] != stage && !p.repeats:
			t.Errorf("%d events of %s, whose last stage is %d", count[id], id, stage)
		}
	}
}
