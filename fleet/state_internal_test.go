package fleet

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestStateFollowsEvents(t *testing.T) {
	ev := func(seq uint64, typ pleg.EventType, id pleg.ContainerID) pleg.Event {
		return pleg.Event{Epoch: "e", Seq: seq, Type: typ, PodUID: "u", ContainerID: id, Replayed: true}
	}
	r := &podState{}
	steps := []struct {
		ev   pleg.Event
		want string // the numbers of the last events
	}{
		{ev(1, pleg.PodSync, ""), ""},
		{ev(2, pleg.ContainerStarted, "s"), "2"},
		{ev(3, pleg.ContainerStarted, "c"), "2 3"},
		{ev(4, pleg.ContainerDied, "s"), "3 4"},
		{ev(5, pleg.ContainerRemoved, "s"), "3"},
		{ev(6, pleg.NetworkFailed, "x"), "3"},
		{ev(7, pleg.ContainerRemoved, "c"), ""},
	}
	for _, s := range steps {
		r.apply(s.ev)
		if r.Seq != s.ev.Seq {
			t.Errorf("the state has the number %d after %d", r.Seq, s.ev.Seq)
		}
		value, _, err := r.encode(1 << 20)
		kit.Must(t, err)
		var state podState
		kit.Must(t, json.Unmarshal(value, &state))
		var got []string
		for _, last := range state.Events {
			got = append(got, string('0'+rune(last.Seq)))
			if last.Replayed {
				t.Error("the state has a replayed event")
			}
		}
		if strings.Join(got, " ") != s.want {
			t.Errorf("after event %d the state has %v, want %q", s.ev.Seq, got, s.want)
		}
	}
}

func TestStateKeepsStatus(t *testing.T) {
	r := &podState{}
	status := &pleg.PodStatus{
		UID: "u", Name: "web", IPs: []string{"10.0.0.7"},
		Containers: []*pleg.ContainerStatus{{ID: "c", Name: "app", State: pleg.StateRunning, Annotations: map[string]string{"large": "x"}}},
		Sandboxes: []*pleg.SandboxStatus{
			{ID: "s0", Labels: map[string]string{"app": "old"}},
			{ID: "s1", Attempt: 1, Ready: true, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"large": "x"}},
		},
	}
	kit.Must(t, r.setStatus(status, nil))
	got, err := r.status()
	if err != nil || got.IPs[0] != "10.0.0.7" || got.Containers[0].State != pleg.StateRunning || !got.Sandboxes[1].Ready {
		t.Errorf("the status is %+v, %v", got, err)
	}
	if r.Labels["app"] != "web" || strings.Contains(string(r.Status), "large") {
		t.Errorf("labels %v, status %s: want those of the newest sandbox, and no annotations", r.Labels, r.Status)
	}
	if err := r.setStatus(nil, errors.New("boom")); err != nil || r.Error != "boom" || r.Status != nil || r.Labels["app"] != "web" {
		t.Errorf("after a failed inspection: %+v, %v", r, err)
	}
}

// A correction changes the end that the state has, as in the replay of the node.
func TestStateHasTheCorrectedEnd(t *testing.T) {
	killed := int32(137)
	s := &podState{}
	s.apply(pleg.Event{Seq: 1, Type: pleg.ContainerDied, ContainerID: "c"})
	s.apply(pleg.Event{Seq: 2, Type: pleg.ContainerCorrected, ContainerID: "c", ExitCode: &killed, Reason: "OOMKilled"})
	if len(s.Events) != 1 || s.Events[0].Seq != 1 || s.Events[0].ExitCode != &killed || s.Events[0].Reason != "OOMKilled" || s.Seq != 2 {
		t.Errorf("the state is %+v", s)
	}
}
