package fleet_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// An agent publishes an event after the state that includes it.
func TestStateBeforeEvent(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	// One subscription of everything: the server keeps the order of one agent's messages.
	all, err := connect(t, s.URL).SubscribeSync(">")
	kit.Must(t, err)
	kit.Must(t, all.SetPendingLimits(-1, -1))
	a := startAgent(t, s.URL, "node-a", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(1)
	c.converges()
	a.steps(200)
	c.converges()
	included := make(map[string]uint64) // the number of the last event in each state
	checked := 0
	for {
		m, err := all.NextMsg(0)
		if err != nil {
			break
		}
		if key, ok := strings.CutPrefix(m.Subject, "$KV."+fleet.StateBucket+"."); ok {
			included[key] = stateSeq(t, m)
		}
		if !strings.HasPrefix(m.Subject, "pleg.v1.ev.") {
			continue
		}
		for _, ev := range eventsIn(t, m.Data) {
			seq, ok := included["test_example.node-a."+ev.PodNamespace+"."+string(ev.PodUID)]
			if ev.PodUID == "" || !ok {
				continue // a Gap, or a pod that came and went within the batch
			}
			checked++
			if seq < ev.Seq {
				t.Errorf("event %d of pod %s comes before its state, which includes %d", ev.Seq, ev.PodUID, seq)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d events were checked", checked)
	}
}

// stateSeq returns the number in a state; the removal of one includes every event.
func stateSeq(t *testing.T, m *nats.Msg) uint64 {
	t.Helper()
	if m.Header.Get("KV-Operation") != "" {
		return math.MaxUint64
	}
	var state struct{ Seq uint64 }
	kit.Must(t, json.Unmarshal(m.Data, &state))
	return state.Seq
}
