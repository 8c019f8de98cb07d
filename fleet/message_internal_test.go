package fleet

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A message has the event and the pod as it is after it, whole.
func TestMessageKeepsEventAndPod(t *testing.T) {
	at := time.Date(2026, 8, 1, 12, 0, 0, 5e6, time.UTC)
	base := pleg.Event{Epoch: "e", Type: pleg.ContainerStarted, PodUID: "u", PodName: "web", PodNamespace: "shop", ObservedAt: at}
	event := func(seq uint64, kind pleg.EventType, id pleg.ContainerID) pleg.Event {
		ev := base
		ev.Seq, ev.Type, ev.ContainerID = seq, kind, id
		return ev
	}
	died := event(3, pleg.ContainerDied, "c")
	died.ExitCode, died.Reason = new(int32(137)), "Error"
	s := &record{}
	for _, ev := range []pleg.Event{event(1, pleg.ContainerStarted, "s"), event(2, pleg.ContainerStarted, "c"), died} {
		s.apply(ev)
	}
	corrected := died
	corrected.Seq, corrected.Type, corrected.Reason = 4, pleg.ContainerCorrected, "OOMKilled"
	s.apply(corrected)
	status := &pleg.PodStatus{
		UID: "u", Name: "web", Namespace: "shop", IPs: []string{"10.0.0.1"}, ObservedAt: at,
		Containers: []*pleg.ContainerStatus{{ID: "c", Name: "app", State: pleg.StateExited, CreatedAt: at, ExitCode: 137}},
		Sandboxes:  []*pleg.SandboxStatus{{ID: "s", Ready: true, Labels: map[string]string{"app": "web"}}},
	}
	kit.Must(t, s.setStatus(status, nil))
	body, cut, err := s.encode(ceSource("prod", "n1"), ofEvent, corrected, 1<<20)
	if err != nil || cut != "" {
		t.Fatal(cut, err)
	}
	const begins = `{"specversion":"1.0","id":"e/4","source":"/clusters/prod/nodes/n1","type":"io.github.pleg-pipeline.container.corrected.v1",` +
		`"subject":"u","time":"2026-08-01T12:00:00.005Z","datacontenttype":"application/json","sequence":"00000000000000000004","data":{"seq":4,`
	if !strings.HasPrefix(string(body), begins) {
		t.Errorf("got %s\nwant %s...", body, begins)
	}
	m, err := decode(body)
	kit.Must(t, err)
	if m.kind != ofEvent || !reflect.DeepEqual(m.Event, corrected) || !slices.EqualFunc(m.Pod.Events, s.events, func(got pleg.Event, want lastEvent) bool { return reflect.DeepEqual(got, want.Event) }) || m.Pod.Events[1].Reason != "OOMKilled" {
		t.Errorf("got %+v with %+v, want %+v with %+v", m.Event, m.Pod.Events, corrected, s.events)
	}
	if got := m.Pod.status(&m.Event); !reflect.DeepEqual(got, status) || !reflect.DeepEqual(m.Pod.Labels, status.Sandboxes[0].Labels) {
		t.Errorf("got the status %+v, want %+v", got, status)
	}
	s.apply(event(5, pleg.ContainerRemoved, "c"))
	s.apply(event(6, pleg.ContainerRemoved, "s"))
	body, _, err = s.encode("", ofState, event(6, pleg.ContainerRemoved, "s"), 1<<20)
	kit.Must(t, err)
	if m, err := decode(body); err != nil || m.kind != ofState || !m.Pod.Gone {
		t.Errorf("got %+v, %v, want a pod that is gone", m, err)
	}
}

func TestBadMessages(t *testing.T) {
	for _, body := range []string{
		``, `{}`, `[]`, `{"data":7}`, `{"data":{"epoch":"e"}}`, `{"data":{"pod":{}}}`,
		`{"type":"io.github.pleg-pipeline.pod.state.v1","data":{"epoch":"e"}}`, `{"type":"io.github.pleg-pipeline.node.gap.v1","data":{}}`,
	} {
		if m, err := decode([]byte(body)); err == nil {
			t.Errorf("%s is read as %+v, want an error", body, m)
		}
	}
	if _, err := encode("", ofEvent, data{Event: pleg.Event{Type: pleg.Bookmark}}); err == nil {
		t.Error("a bookmark can be published")
	}
}

// What a watch does with each message, by what it knows of the node.
func TestJudge(t *testing.T) {
	known := progress{epoch: "e", seq: 7, known: true}
	said := func(k kind, epoch string, seq uint64) *message {
		return &message{k, data{Event: pleg.Event{Epoch: epoch, Seq: seq}}}
	}
	for name, tt := range map[string]struct {
		p    progress
		m    *message
		want action
	}{
		"the next event":                  {known, said(ofEvent, "e", 8), deliver},
		"an event again":                  {known, said(ofEvent, "e", 7), skip},
		"a hole":                          {known, said(ofEvent, "e", 9), replayHole},
		"an event of another epoch":       {known, said(ofEvent, "f", 8), replayHole},
		"the first event of a node":       {progress{}, said(ofEvent, "e", 9), deliver},
		"a state that is published again": {known, said(ofState, "e", 7), skip},
		"a state of another epoch":        {known, said(ofState, "f", 3), skip},
		"the Gap":                         {known, said(ofGap, "f", 3), replayGap},
		"the Gap of an unknown node":      {progress{}, said(ofGap, "f", 3), replayGap},
		"an agent":                        {known, said(ofAgent, "", 0), skip},
	} {
		if got := tt.p.judge(tt.m); got != tt.want {
			t.Errorf("%s: action %d, want %d", name, got, tt.want)
		}
	}
}

// A pod that changes while a watch receives the states of all comes twice: first its state, then the event.
func TestEventWithinTheStates(t *testing.T) {
	all, err := filter.New(pleg.Filter{})
	kit.Must(t, err)
	var got []Event
	w := watch{
		filter: all, nodes: make(map[string]*progress), seen: make(map[string]struct{}),
		yield: func(ev Event, _ error) bool { got = append(got, ev); return true },
	}
	for i, kind := range []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied} {
		seq := uint64(i + 1)
		ev := pleg.Event{Epoch: "e", Seq: seq, Type: kind, PodUID: "u", ContainerID: "c"}
		kit.Must(t, w.deliver(t.Context(), "subject", "n", &message{ofEvent, data{Event: ev, Pod: &podState{Events: []pleg.Event{ev}}}}, place{message: seq}))
	}
	if len(got) != 2 || !got[0].Replayed || got[1].Replayed || got[1].Type != pleg.ContainerDied {
		t.Errorf("got %+v, want the state and then the event", got)
	}
}
