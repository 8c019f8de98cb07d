package fleet_test

import (
	"encoding/json"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// Every message is a CloudEvent that the official SDK accepts.
func TestMessagesAreCloudEvents(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{})
	a.steps(1)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	c.converges()
	a.steps(100)
	c.converges()
	types := make(map[string]int)
	eachMessage(t, s.URL, func(m *jetstream.RawStreamMsg) {
		if got := m.Header.Get("Content-Type"); got != event.ApplicationCloudEventsJSON {
			t.Errorf("message %d has the content type %q", m.Sequence, got)
		}
		var ev event.Event
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			t.Fatalf("message %d: %v\n%s", m.Sequence, err, m.Data)
		}
		if err := ev.Validate(); err != nil {
			t.Errorf("message %d: %v\n%s", m.Sequence, err, m.Data)
		}
		if ev.Source() != "/clusters/"+cluster+"/nodes/node-a" || ev.SpecVersion() != event.CloudEventsVersionV1 || ev.Extensions()["sequence"] == "" {
			t.Errorf("message %d has the event %v", m.Sequence, ev)
		}
		types[ev.Type()]++
	})
	for _, want := range []string{"node.gap", "node.synced", "pod.state", "container.started", "container.died", "container.removed", "pod.sync"} {
		if types["io.github.pleg-pipeline."+want+".v1"] == 0 {
			t.Errorf("no event of the type %s among %v", want, types)
		}
	}
}
