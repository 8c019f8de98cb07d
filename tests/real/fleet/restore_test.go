package fleet_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// backup contains the files of "nats stream backup".
type backup struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
	chunks [][]byte
}

// askServer makes a request of the JetStream API and returns its answer.
func askServer(t *testing.T, conn *nats.Conn, subject string, request, answer any) {
	t.Helper()
	text, err := json.Marshal(request)
	kit.Must(t, err)
	m, err := conn.Request("$JS.API.STREAM."+subject, text, patience)
	kit.Must(t, err)
	var refused struct{ Error *jetstream.APIError }
	kit.Must(t, json.Unmarshal(m.Data, &refused))
	if refused.Error != nil {
		t.Fatal(refused.Error)
	}
	kit.Must(t, json.Unmarshal(m.Data, answer))
}

// backUp does what "nats stream backup" does.
func backUp(t *testing.T, conn *nats.Conn) (b backup) {
	t.Helper()
	chunks, err := conn.SubscribeSync(nats.NewInbox())
	kit.Must(t, err)
	askServer(t, conn, "SNAPSHOT."+streams[0], map[string]any{"deliver_subject": chunks.Subject, "no_consumers": true}, &b)
	for {
		m, err := chunks.NextMsg(patience)
		kit.Must(t, err)
		if len(m.Data) == 0 {
			return b
		}
		b.chunks = append(b.chunks, m.Data)
		if m.Reply != "" {
			kit.Must(t, m.Respond(nil))
		}
	}
}

// restore does what "nats stream restore" does.
func (b backup) restore(t *testing.T, conn *nats.Conn) {
	t.Helper()
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	askServer(t, conn, "RESTORE."+streams[0], map[string]any{"config": b.Config, "state": b.State}, &to)
	for _, chunk := range append(b.chunks, nil) {
		_, err := conn.Request(to.Subject, chunk, patience)
		kit.Must(t, err)
	}
}

// A backup brings old messages and their numbers back. Agents publish the present state again, also a quiet agent that
// has lost only one pod since the backup, and no watch takes the restored messages for those that it has received.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"at once": 0, "later": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, `authorization { users: [
				{user: agent, password: x, permissions: {publish: {deny: "$JS.API.STREAM.CREATE.pleg-v2-test_example"}}}
				{user: root, password: x}
			] }`)
			as := func(user string) string { return "nats://" + user + ":x@" + s.URL[len("nats://"):] }
			conn := connect(t, as("root"))
			js := jetStream(t, conn)
			kit.Must(t, fleet.Create(t.Context(), js, cluster, fleet.Limits{}))
			a, b := startAgent(t, as("agent"), "node-a", agentOptions{first: 20}), startAgent(t, as("agent"), "node-b", agentOptions{first: 20})
			first := watch(t, as("root"), fleet.WatchOptions{Replay: true}, a, b)
			first.converges()
			b.steps(5)
			first.converges()
			before, _, _ := first.got()
			saved := backUp(t, conn)
			a.node.RemoveOne()
			b.steps(20)
			first.converges()
			after, _, _ := first.got()
			kit.Must(t, js.DeleteStream(t.Context(), streams[0]))
			time.Sleep(away)
			saved.restore(t, conn)
			resumed := func() {
				for _, had := range [][]fleet.Event{before, after} {
					watchFrom(t, as("root"), fleet.WatchOptions{After: &had[len(had)-1].At}, had, a, b).converges()
				}
			}
			resumed()
			first.within(30 * time.Second)
			b.steps(40) // more messages than the deleted stream had
			first.converges()
			resumed()
			watch(t, as("root"), fleet.WatchOptions{Replay: true}, a, b).converges()
		})
	}
}

// An agent with the permission creates the stream or the bucket again if it was deleted.
func TestDeletedStream(t *testing.T) {
	t.Parallel()
	for _, stream := range streams {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			f := startField(t, fieldOptions{})
			kit.Must(t, jetStream(t, connect(t, f.server.URL)).DeleteStream(t.Context(), stream))
			f.a.steps(1)
			f.within(45 * time.Second) // an agent without changes looks every 20 s
			f.late()
			states := openStates(t, f.server.URL)
			until(t, func() error {
				nodes, err := states.Nodes(t.Context())
				if err == nil && (len(nodes) != 2 || nodes[0].Silent || nodes[1].Silent) {
					err = fmt.Errorf("the nodes are %+v", nodes)
				}
				return err
			})
		})
	}
}
