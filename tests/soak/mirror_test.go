package soak_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/soak"
)

// told returns events of container c of pod p, numbered from 1 on.
func told(types ...pleg.EventType) []pleg.Event {
	var events []pleg.Event
	for i, t := range types {
		events = append(events, pleg.Event{Seq: uint64(i + 1), Type: t, PodUID: "p", ContainerID: "c", ObservedAt: time.Unix(int64(i), 0)})
	}
	return events
}

func with(events []pleg.Event, change func([]pleg.Event)) []pleg.Event {
	change(events)
	return events
}

func truth(state pleg.State) soak.Truth {
	return soak.Truth{"p": {Namespace: "n", Containers: map[pleg.ContainerID]soak.Container{"c": {State: state}}}}
}

func nobody(pleg.PodUID) (*pleg.PodStatus, error) { return nil, errors.New("nobody is to be asked") }

// Each of these breaks what a subscription promises; the rest does not.
func TestMirrorSeesWhatMustNotBe(t *testing.T) {
	const started, died, removed = pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved
	for name, test := range map[string]struct {
		events []pleg.Event
		end    soak.Truth
		bad    int
	}{
		"a whole life":             {told(started, died, removed), soak.Truth{}, 0},
		"short":                    {told(died, removed), soak.Truth{}, 0},
		"runs":                     {told(started), truth(pleg.StateRunning), 0},
		"only created":             {nil, truth(pleg.StateCreated), 0},
		"started twice":            {told(started, started), truth(pleg.StateRunning), 1},
		"died twice":               {told(started, died, died), truth(pleg.StateExited), 1},
		"removed twice":            {told(started, died, removed, removed), soak.Truth{}, 1},
		"back to life":             {told(started, died, started), truth(pleg.StateRunning), 1},
		"removed alive":            {told(started, removed), soak.Truth{}, 1},
		"end not told":             {told(started), truth(pleg.StateExited), 1},
		"never told":               {nil, truth(pleg.StateRunning), 1},
		"removal not told":         {told(started, died), soak.Truth{}, 1},
		"not asked for":            {told(pleg.NetworkFailed), soak.Truth{}, 1},
		"missed, though it reads":  {with(told(pleg.PodSync), func(e []pleg.Event) { e[0].Missed = 2 }), soak.Truth{}, 1},
		"numbers go back":          {with(told(started, died), func(e []pleg.Event) { e[1].Seq = 1 }), truth(pleg.StateExited), 1},
		"observed earlier":         {with(told(started, died), func(e []pleg.Event) { e[1].ObservedAt = time.Unix(-1, 0) }), truth(pleg.StateExited), 1},
		"wrong exit code":          {with(told(died), func(e []pleg.Event) { code := int32(7); e[0].ExitCode = &code }), truth(pleg.StateExited), 1},
		"told anew after a gap":    {told(started, died, pleg.Gap, died), truth(pleg.StateExited), 0},
		"a bookmark takes no seq.": {with(told(started, pleg.Bookmark), func(e []pleg.Event) { e[1].Seq = 1 }), truth(pleg.StateRunning), 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := soak.NewMirror(true, nobody)
			m.See(test.events...)
			for range 5 {
				m.Audit(test.end)
			}
			if len(m.Problems) != test.bad {
				t.Errorf("problems = %q, want %d", m.Problems, test.bad)
			}
		})
	}
}

// What was missed is made good from the cache, now or when there is a status.
func TestMirrorRepairs(t *testing.T) {
	var status *pleg.PodStatus
	err := errors.New("the inspection has failed")
	m := soak.NewMirror(false, func(pleg.PodUID) (*pleg.PodStatus, error) { return status, err })
	events := told(pleg.ContainerStarted, pleg.PodSync, pleg.ContainerRemoved)
	events[1].Missed = 1
	m.See(events[:2]...)
	if diff := m.Compare(truth(pleg.StateExited)); len(diff) != 1 {
		t.Errorf("differences = %q, want that it has ended", diff)
	}
	status, err = &pleg.PodStatus{UID: "p", Containers: []*pleg.ContainerStatus{{ID: "c", State: pleg.StateExited}}}, nil
	m.See(pleg.Event{Seq: 3, Type: pleg.PodSync, PodUID: "p", ObservedAt: time.Unix(2, 0)})
	if diff := m.Compare(truth(pleg.StateExited)); len(diff) != 0 {
		t.Errorf("differences = %q, want none", diff)
	}
	m.Audit(truth(pleg.StateExited))
	events[2].Seq = 4
	status = &pleg.PodStatus{UID: "p"}
	m.See(events[2])
	m.Audit(soak.Truth{})
	if diff := m.Compare(soak.Truth{}); len(diff) != 0 || len(m.Problems) != 0 {
		t.Errorf("differences = %q, problems = %q, want none", diff, m.Problems)
	}
}

func TestMirrorDiffers(t *testing.T) {
	m := soak.NewMirror(true, nobody)
	m.See(told(pleg.ContainerStarted)...)
	for name, test := range map[string]struct {
		truth soak.Truth
		want  int
	}{
		"equal": {truth(pleg.StateRunning), 0},
		"ended": {truth(pleg.StateExited), 1},
		"gone":  {soak.Truth{}, 1},
	} {
		if diff := m.Compare(test.truth); len(diff) != test.want {
			t.Errorf("%s: differences = %q, want %d", name, diff, test.want)
		}
	}
}
