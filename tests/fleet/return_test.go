package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// A whole fleet comes back at once when its server does. So an agent whose connection broke
// reads only what was not acknowledged: not even the names of its states.
func TestReturnReadsLittle(t *testing.T) {
	t.Parallel()
	server, relay, a, c := startBehindRelay(t, false)
	searches := searchesOfStates(t, server, "$JS.API.STREAM.INFO.KV_"+fleet.StateBucket)
	for range 3 {
		a.lose(relay)
		c.converges()
	}
	requireNone(t, searches)
}

// A whole fleet may start at once. So neither an agent that starts, nor the watch that sees it,
// makes the server search the bucket, through a consumer or by a batched direct get.
func TestStartReadsLittle(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a, b := startAgent(t, s.URL, "node-a", agentOptions{}), startAgent(t, s.URL, "node-b", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	a.steps(30)
	b.steps(30)
	c.converges()
	searches := searchesOfStates(t, s.URL)
	for range 3 {
		a.restart()
		c.eventually(func() error { return c.hasGap("node-a", a.node.Epoch()) })
		c.converges()
	}
	requireNone(t, searches)
}

// A node with more keys than the server sends at once is read all the same: its agent removes
// those of pods that are gone.
func TestNodeWithManyKeys(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(30)
	c.converges()
	a.stop()
	js := jetStream(t, connect(t, s.URL))
	const keys = 1100
	for i := range keys {
		gone := fmt.Sprintf("$KV.%s.test_example.node-a.shop.gone-%d", fleet.StateBucket, i)
		if _, err := js.PublishAsync(gone, []byte(`{"epoch":"gone","uid":"gone"}`)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	a.restart()
	c.eventually(func() error { return c.hasGap("node-a", a.node.Epoch()) })
	c.converges()
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	bucket, err := js.KeyValue(t.Context(), fleet.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	left, err := bucket.ListKeysFiltered(t.Context(), "test_example.node-a.shop.*")
	if err != nil {
		t.Fatal(err)
	}
	for key := range left.Keys() {
		if strings.Contains(key, ".gone-") {
			t.Errorf("%s is left", key)
		}
	}
}

// searchesOfStates receives a message for each consumer of the states that is created, for each
// batched direct get, and for each request with a subject of more.
func searchesOfStates(t *testing.T, url string, more ...string) []*nats.Subscription {
	t.Helper()
	conn := connect(t, url)
	var searches []*nats.Subscription
	more = append(more, "$JS.EVENT.ADVISORY.CONSUMER.CREATED.KV_"+fleet.StateBucket+".>", "$JS.API.DIRECT.GET.KV_"+fleet.StateBucket)
	for _, subject := range more {
		sub, err := conn.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		searches = append(searches, sub)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return searches
}

func requireNone(t *testing.T, searches []*nats.Subscription) {
	t.Helper()
	for _, searched := range searches {
		if m, err := searched.NextMsg(0); err == nil {
			t.Errorf("the server searched the states: %s %s", m.Subject, m.Data)
		}
	}
}

// What was under way when the connection broke is written again, states too: who comes
// late finds nothing stale.
func TestStatesUnderWayAreWrittenAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	relay := newRelay(t, s.URL)
	a := startAgent(t, relay.url, "node-a", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(30)
	c.converges()
	gaps := c.gapsSoFar()
	for range 3 {
		a.lose(relay)
		c.converges()
		watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	}
	if got := c.gapsSoFar(); got != gaps {
		t.Errorf("%d gaps, want none more than the %d before", got, gaps)
	}
}

// The return of the server ends the wait between two attempts, however long it is.
func TestReturnEndsTheWait(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{backoff: 24 * time.Hour})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(10)
	c.converges()
	s.Kill()
	a.awaitDisconnected()
	a.steps(10)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.converges()
}

// awaitDisconnected waits until the agent has noticed that the server is away.
func (a *agent) awaitDisconnected() {
	a.t.Helper()
	for deadline := time.Now().Add(patience); a.conn.IsConnected(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatal("the agent is connected, although the server is away")
		}
	}
}

// lose makes the agent send events that do not arrive, and cuts its connection.
func (a *agent) lose(r *relay) {
	r.hold()
	a.steps(30)
	time.Sleep(50 * time.Millisecond) // for the agent to send something
	r.cut()
	r.release()
}
