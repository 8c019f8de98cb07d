package fleet_test

import (
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// startGuardedServer returns a function for the address of a server with the permissions of deploy/, as one of its
// users: node-a, reader or operator. The operator publishes as node-b.
func startGuardedServer(t *testing.T) (as func(user string) string, b *agent) {
	t.Helper()
	conf, err := os.ReadFile("../../../deploy/overlays/fleet/nats.conf")
	kit.Must(t, err)
	named := strings.NewReplacer(
		"nkey: NODE_A", "user: node-a, password: x", "nkey: READER", "user: reader, password: x", "nkey: OPERATOR", "user: operator, password: x",
		".example.", ".test_example.", "pleg-v2-example", "pleg-v2-test_example",
	).Replace(string(conf))
	s := startServer(t, named)
	as = func(user string) string { return strings.Replace(s.URL, "nats://", "nats://"+user+":x@", 1) }
	b = startAgent(t, as("operator"), "node-b", agentOptions{})
	b.steps(10)
	watch(t, as("operator"), fleet.WatchOptions{Replay: true}, b).converges()
	return as, b
}

func TestPermissionsSuffice(t *testing.T) {
	t.Parallel()
	as, b := startGuardedServer(t)
	a := startAgent(t, as("node-a"), "node-a", agentOptions{})
	c := watch(t, as("reader"), fleet.WatchOptions{Replay: true}, a, b)
	a.steps(30)
	c.converges()
	a.restart()
	a.steps(30)
	c.converges()
	states := openStates(t, as("reader"))
	nodes, err := states.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].Agent == "" {
		t.Errorf("a reader has the nodes %+v and %v, want 2 with their agents", nodes, err)
	}
	pods := 0
	for _, err := range states.Pods(t.Context(), nil, nil) {
		kit.Must(t, err)
		pods++
	}
	if pods == 0 {
		t.Error("a reader has no pods")
	}
}

func TestPermissionsRefuse(t *testing.T) {
	t.Parallel()
	as, _ := startGuardedServer(t)
	others := []string{
		"pleg.v2.test_example.node-b.uid", "pleg.v2.test_example.node-b.=", "pleg.v2.test_example.node-a", "pleg.v2.other.node-a.uid",
		"$KV.pleg-agents.test_example.node-b", "$JS.API.STREAM.CREATE.pleg-v2-test_example", "$JS.API.STREAM.UPDATE.pleg-v2-test_example",
		"$JS.API.STREAM.DELETE.pleg-v2-test_example", "$JS.API.STREAM.PURGE.pleg-v2-test_example", "$JS.API.STREAM.MSG.DELETE.pleg-v2-test_example",
		"$JS.API.STREAM.SNAPSHOT.pleg-v2-test_example", "_INBOX.of.another", "any.thing",
	}
	for user, refused := range map[string][]string{
		"node-a": append([]string{
			"$JS.API.CONSUMER.CREATE.pleg-v2-test_example.c", "$JS.API.CONSUMER.CREATE.pleg-v2-test_example.c.pleg.v2.test_example.node-b.>",
			"$JS.API.DIRECT.GET.pleg-v2-test_example",
		}, others...),
		"reader": append([]string{"pleg.v2.test_example.node-a.uid", "$KV.pleg-agents.test_example.node-a"}, others...),
	} {
		conn, err := nats.Connect(as(user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		kit.Must(t, err)
		defer conn.Close()
		for _, subject := range refused {
			kit.Must(t, conn.Publish(subject, []byte("forged")))
			kit.Must(t, conn.FlushTimeout(patience))
			if err := conn.LastError(); err == nil || !strings.Contains(err.Error(), `"`+subject+`"`) {
				t.Errorf("%s may publish to %s: %v", user, subject, err)
			}
		}
	}
}

// The server does not check whether a client may write to the subject of its answers. So an agent
// can make the server write garbage into a subject of another node. That stops nobody: if it is the
// node's own subject, its agent begins again.
func TestAnswersInTheSubjectOfAnotherNode(t *testing.T) {
	t.Parallel()
	as, b := startGuardedServer(t)
	c := watch(t, as("reader"), fleet.WatchOptions{Replay: true}, b)
	c.converges()
	conn := connect(t, as("node-a"))
	for _, last := range []string{"=", "uid", "node-b-000001"} {
		kit.Must(t, conn.PublishRequest("$JS.API.STREAM.INFO."+streams[0], "pleg.v2.test_example.node-b."+last, nil))
		kit.Must(t, conn.FlushTimeout(patience))
		b.steps(5)
		c.converges()
	}
}
