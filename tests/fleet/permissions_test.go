package fleet_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// startGuardedServer returns a server with the permissions of deploy/ for this number of parts, and a
// function for its address as one of its users: node-a, reader or operator.
func startGuardedServer(t *testing.T, parts int) (as func(user string) string) {
	t.Helper()
	conf, err := os.ReadFile("../../deploy/overlays/fleet/nats.conf")
	kit.Must(t, err)
	named := strings.NewReplacer(
		"nkey: NODE_A", "user: node-a, password: x", "nkey: READER", "user: reader, password: x", "nkey: OPERATOR", "user: operator, password: x",
		".example.", ".test_example.",
	).Replace(string(conf))
	if parts > 1 {
		named = inParts(named, parts)
	}
	s := startServer(t, named)
	return func(user string) string { return strings.Replace(s.URL, "nats://", "nats://"+user+":x@", 1) }
}

// inParts repeats what permits something for each part, as docs/fleet.md says.
func inParts(conf string, parts int) string {
	var all strings.Builder
	for line := range strings.Lines(conf) {
		for number := range parts {
			one := strings.Replace(line, "pleg.v1.ev.test_example.", fmt.Sprintf("pleg.v1.ev.test_example.%d.", number), 1)
			if number > 0 {
				suffix := fmt.Sprintf("-%d", number)
				one = strings.NewReplacer("pleg-events", "pleg-events"+suffix, "pleg-state", "pleg-state"+suffix, "pleg-agents", "pleg-agents"+suffix).Replace(one)
			}
			if number == 0 || one != line {
				all.WriteString(one)
			}
		}
	}
	return all.String()
}

func TestPermissionsSuffice(t *testing.T) {
	t.Parallel()
	for _, parts := range []int{1, 3} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			t.Parallel()
			permissionsSuffice(t, parts)
		})
	}
}

func permissionsSuffice(t *testing.T, parts int) {
	as := startGuardedServer(t, parts)
	o := startAgent(t, as("operator"), "node-b", agentOptions{limits: fleet.Limits{Parts: parts}})
	o.steps(10)
	watch(t, as("operator"), fleet.WatchOptions{Replay: true}, o).converges()
	a := startAgent(t, as("node-a"), "node-a", agentOptions{})
	c := watch(t, as("reader"), fleet.WatchOptions{Replay: true}, a, o)
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
	for pod, err := range states.Pods(t.Context(), nil, nil) {
		kit.Must(t, err)
		pods++
		if one, ok, err := states.Pod(t.Context(), pod.Node, pod.Namespace, pod.UID); err != nil || !ok || one.Name != pod.Name {
			t.Errorf("a reader has the pod %+v, %t and %v, want %s", one, ok, err, pod.Name)
		}
	}
	if pods == 0 {
		t.Error("a reader has no pods")
	}
}

func TestPermissionsRefuse(t *testing.T) {
	t.Parallel()
	as := startGuardedServer(t, 1)
	o := startAgent(t, as("operator"), "node-b", agentOptions{})
	o.steps(10)
	watch(t, as("operator"), fleet.WatchOptions{Replay: true}, o).converges()
	others := []string{
		"pleg.v1.ev.test_example.node-b", "pleg.v1.ev.test_example.node-a.more", "pleg.v1.ev.other.node-a",
		"$KV.pleg-state.test_example.node-b", "$KV.pleg-state.test_example.node-b.shop.uid", "$KV.pleg-agents.test_example.node-b",
		"$JS.API.STREAM.CREATE.pleg-events", "$JS.API.STREAM.UPDATE.pleg-events", "$JS.API.STREAM.DELETE.pleg-events",
		"$JS.API.STREAM.PURGE.KV_pleg-state", "$JS.API.STREAM.MSG.DELETE.pleg-events", "$JS.API.STREAM.SNAPSHOT.pleg-events",
		"_INBOX.of.another", "any.thing",
	}
	for user, refused := range map[string][]string{
		"node-a": append([]string{"$JS.API.CONSUMER.CREATE.pleg-events.c", "$JS.API.DIRECT.GET.pleg-events", "$JS.API.DIRECT.GET.KV_pleg-state"}, others...),
		"reader": append([]string{"pleg.v1.ev.test_example.node-a", "$KV.pleg-state.test_example.node-a", "$KV.pleg-agents.test_example.node-a"}, others...),
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

// The server does not ask whether a client may write where it wants its answers. So an agent can
// make it write what is no event into the subject of another node. It costs that node's agent an
// attempt, and nothing else.
func TestAnswersInTheSubjectOfAnotherNode(t *testing.T) {
	t.Parallel()
	as := startGuardedServer(t, 1)
	b := startAgent(t, as("operator"), "node-b", agentOptions{})
	c := watch(t, as("reader"), fleet.WatchOptions{Replay: true}, b)
	b.steps(10)
	c.converges()
	gaps := c.gapsSoFar()
	conn := connect(t, as("node-a"))
	for range 5 {
		kit.Must(t, conn.PublishRequest("$JS.API.STREAM.INFO."+fleet.EventStream, "pleg.v1.ev.test_example.node-b", nil))
		kit.Must(t, conn.FlushTimeout(patience))
		b.steps(5)
		c.converges()
	}
	c.hasGaps(gaps)
}
