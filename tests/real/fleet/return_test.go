package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// When a server comes back, the whole fleet reconnects at once. So an agent whose connection broke
// asks only for messages that were not acknowledged: it does not make the server search for its
// pods.
func TestAgentsReadLittle(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	searches, err := connect(t, f.server.URL).SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED." + streams[0] + ".*")
	kit.Must(t, err)
	for range 3 {
		f.a.lose(f.relay)
		f.converges()
		f.loseAnswers("pleg.v2.test_example.node-a.>", 5)
		f.converges()
	}
	if m, err := searches.NextMsg(0); err == nil {
		t.Errorf("the server searched: %s %s", m.Subject, m.Data)
	}
	var last uint64 // a message that was sent again is stored once
	eachMessage(t, f.server.URL, func(m *jetstream.RawStreamMsg) {
		ev := eventIn(t, m.Data)
		if !strings.HasPrefix(m.Subject, "pleg.v2.test_example.node-a.") || ev.Type == "" || ev.Type == pleg.Gap {
			return
		}
		if ev.Seq <= last {
			t.Errorf("event %d is stored after event %d", ev.Seq, last)
		}
		last = ev.Seq
	})
}

// Pods that end while no agent runs are gone for each later watch.
func TestPodsThatAreGone(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.a.stop()
	f.a.steps(100)
	f.cancel() // this watch would believe the later messages
	<-f.done
	js := jetStream(t, connect(t, f.server.URL))
	const pods = 1100
	for i := range pods {
		gone := fmt.Sprintf(`{"type": "io.github.pleg-pipeline.pod.state.v1", "data": {"epoch": "gone", "podUID": "gone-%d", "pod": {"events": [{"type": "ContainerStarted"}]}}}`, i)
		if _, err := js.PublishAsync(fmt.Sprintf("pleg.v2.test_example.node-a.gone-%d", i), []byte(gone)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	f.a.restart()
	states := openStates(t, f.server.URL)
	until(t, func() error {
		for pod, err := range states.Pods(t.Context(), nil, nil) {
			if err != nil || strings.HasPrefix(string(pod.UID), "gone-") {
				return fmt.Errorf("%s is left: %w", pod.UID, err)
			}
		}
		return nil
	})
	f.late()
}

// loseAnswers cuts the connection of the first agent once a message with this subject has arrived, before the
// answer comes.
func (f *field) loseAnswers(subject string, steps int) {
	f.t.Helper()
	stream := streamAt(f.t, f.server.URL)
	newest := func() uint64 {
		m, err := stream.GetLastMsgForSubject(f.t.Context(), subject)
		kit.Must(f.t, err)
		return m.Sequence
	}
	before := newest()
	f.relay.delay.Store(int64(300 * time.Millisecond))
	f.a.steps(steps)
	until(f.t, func() error {
		if newest() == before {
			return fmt.Errorf("no message for %s has arrived", subject)
		}
		return nil
	})
	f.relay.cut()
	f.relay.delay.Store(0)
}

// lose makes the agent send events that do not arrive, and cuts its connection.
func (a *agent) lose(r *relay) {
	r.hold()
	a.steps(30)
	time.Sleep(50 * time.Millisecond) // for the agent to send something
	r.cut()
	r.release()
}
