package fleet_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// While the server is away, events wait in the history; none is missing afterwards.
func TestServerKilledAndRestarted(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a, b := startAgent(t, s.URL, "node-a", agentOptions{}), startAgent(t, s.URL, "node-b", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	a.steps(20)
	c.converges()
	gaps := c.gapsSoFar()
	for range 3 {
		a.steps(40)
		s.Kill()
		a.steps(100)
		b.steps(100)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.converges()
	}
	if got := c.gapsSoFar(); got != gaps {
		t.Errorf("%d gaps, want none more than the %d before the faults", got, gaps)
	}
}

// A server that does not answer for 30 s is one that was away.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(20)
	c.converges()
	gaps := c.gapsSoFar()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		a.steps(5)
		time.Sleep(stoppedFor / 30)
	}
	if err := s.Continue(); err != nil {
		t.Fatal(err)
	}
	c.converges()
	if got := c.gapsSoFar(); got != gaps {
		t.Errorf("%d gaps, want none more than the %d before", got, gaps)
	}
}

const stoppedFor = 30 * time.Second

// The connection breaks again and again while the agent publishes.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	_, relay, a, c := startBehindRelay(t, false)
	gaps := c.gapsSoFar()
	for range 30 {
		a.steps(20)
		relay.cut()
	}
	c.converges()
	if got := c.gapsSoFar(); got != gaps {
		t.Errorf("%d gaps, want none more than the %d before", got, gaps)
	}
}

// within fails if the consumer takes longer to converge.
func (c *consumer) within(bound time.Duration) {
	c.t.Helper()
	began := time.Now()
	c.converges()
	took := time.Since(began)
	c.t.Logf("the consumer has everything after %v", took)
	if took > bound {
		c.t.Errorf("want at most %v", bound)
	}
}

// A path that no longer passes anything, without an end of the connection, is noticed: by the
// agent and by the watch.
func TestDeadPathIsNoticed(t *testing.T) {
	t.Parallel()
	_, relay, a, c := startBehindRelay(t, true)
	relay.strand()
	a.steps(20)
	c.within(30 * time.Second)
}

// An agent of 200 pods that is far from its server comes back soon after it was restarted.
func TestAgentFarFromItsServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	near := startAgent(t, s.URL, "node-a", agentOptions{pods: 200})
	near.steps(500)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, near)
	c.converges()
	relay := newRelay(t, s.URL)
	relay.delay = 100 * time.Millisecond // 200 ms to the server and back
	near.url = relay.url
	near.restart()
	near.steps(1)
	c.within(10 * time.Second)
}

// If the stream is full, the oldest events go. A consumer that does not read then gets a
// Gap and converges.
func TestStreamFullAndConsumerStalled(t *testing.T) {
	t.Parallel()
	s := startServer(t, "max_payload: 65536") // a consumer buffers four of this size, or 1 MiB
	limits := fleet.Limits{MaxBytes: 256 << 10}
	a := startAgent(t, s.URL, "node-a", agentOptions{limits: limits})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	b := startAgent(t, s.URL, "node-b", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	a.steps(20)
	b.steps(20)
	c.converges()
	gaps := c.gapsSoFar()
	c.stall.Lock()
	storm := func(messages int) {
		for range messages { // each is a message, because it waits for the one before
			a.steps(4)
			time.Sleep(2 * time.Millisecond)
		}
	}
	storm(400) // more than waits for a consumer that does not read
	b.steps(3) // the last of this node: no later event can show that they are missing
	storm(200)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
	c.stall.Unlock()
	c.converges()
	if c.gapsSoFar() == gaps {
		t.Error("no Gap, although the stream no longer had the events")
	}
}

// The stream no longer has the last message of a quiet node, and the consumer, which did not
// read for a while, gets newer ones of another node only. They do not hide that it is missing.
func TestRemovedMessageOfAQuietNode(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a, b := startAgent(t, s.URL, "node-a", agentOptions{}), startAgent(t, s.URL, "node-b", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	a.steps(20)
	b.steps(20)
	c.converges()
	stream, err := jetStream(t, connect(t, s.URL)).Stream(t.Context(), fleet.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	last := func() uint64 {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.LastSeq
	}
	c.stall.Lock()
	for end := last() + 600; last() < end; { // more than waits for a consumer that does not read
		a.steps(1)
	}
	b.steps(3)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(last()+1)); err != nil {
		t.Fatal(err)
	}
	a.steps(5)
	c.stall.Unlock()
	c.converges()
}

// A stream that refuses what does not fit loses nothing: the events wait in the history.
func TestStreamThatRefuses(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	js := jetStream(t, connect(t, s.URL))
	config := jetstream.StreamConfig{
		Name: fleet.EventStream, Subjects: []string{"pleg.v1.ev.*.*"}, MaxBytes: 64 << 10, Discard: jetstream.DiscardNew, AllowDirect: true,
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, s.URL, "node-a", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	for range 50 {
		a.steps(10)
		time.Sleep(5 * time.Millisecond)
	}
	config.MaxBytes = 64 << 20
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	c.converges()
	if got := c.gapsSoFar(); got > 1 {
		t.Errorf("%d gaps, want only the first one of the node", got)
	}
}

// A restarted agent has a new epoch: a Gap of this node, and its present state.
func TestAgentRestarted(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a, b := startAgent(t, s.URL, "node-a", agentOptions{}), startAgent(t, s.URL, "node-b", agentOptions{})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	for range 5 {
		a.steps(30)
		b.steps(30)
		c.converges()
		a.restart()
		c.eventually(func() error { return c.hasGap("node-a", a.node.Epoch()) })
		c.converges()
	}
	if err := c.hasGap("node-b", b.node.Epoch()); c.count(pleg.Gap, "node-b") > 1 {
		t.Errorf("node-b has more than its first gap: %v", err)
	}
}

// If the history of the node is shorter than the absence of the server, a Gap says so.
func TestHistoryTooShort(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{history: 20})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(10)
	c.converges()
	s.Kill()
	a.steps(100)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.converges()
	c.eventually(func() error {
		for _, ev := range c.events {
			if ev.Type == pleg.Gap && ev.Reason == pleg.HistoryTooShort && ev.Node == "node-a" && ev.Missed > 0 {
				return nil
			}
		}
		return fmt.Errorf("no Gap of the history among %d events", len(c.events))
	})
}

// Of two agents of one node, the newer one publishes and the older one waits. When the
// newer one has ended, the older one goes on.
func TestTwoAgentsOfOneNode(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	old := startAgent(t, s.URL, "node-a", agentOptions{})
	old.steps(20)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, old)
	c.converges()
	newer := startAgent(t, s.URL, "node-a", agentOptions{})
	c.mu.Lock()
	c.agents = []*agent{newer}
	c.Published = func(_, epoch string) []pleg.Event {
		if epoch == newer.node.Epoch() {
			return newer.node.Published()
		}
		return old.published(epoch)
	}
	c.mu.Unlock()
	for range 20 {
		old.steps(5)
		newer.steps(5)
		time.Sleep(20 * time.Millisecond)
	}
	c.converges()
	before := c.gapsSoFar()
	for range 20 {
		old.steps(5)
		newer.steps(5)
		time.Sleep(20 * time.Millisecond)
	}
	c.converges()
	if got := c.gapsSoFar(); got != before {
		t.Errorf("%d gaps more: the agents take turns", got-before)
	}
	newer.stop()
	c.eventually(func() error { return c.Compare(map[string]promises.Truth{"node-a": old.node.Truth()}) })
}

// An agent that was stopped while another one took its place is refused.
func TestOldAgentComesBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	relay := newRelay(t, s.URL)
	old := startAgent(t, relay.url, "node-a", agentOptions{})
	old.steps(20)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, old)
	c.converges()
	relay.hold()
	newer := startAgent(t, s.URL, "node-a", agentOptions{})
	newer.steps(20)
	c.mu.Lock()
	c.agents = []*agent{newer}
	c.Published = func(_, epoch string) []pleg.Event {
		if epoch == newer.node.Epoch() {
			return newer.node.Published()
		}
		return old.published(epoch)
	}
	c.mu.Unlock()
	c.eventually(func() error { return c.hasGap("node-a", newer.node.Epoch()) })
	c.converges()
	gaps := c.gapsSoFar()
	old.steps(50)
	relay.release()
	old.steps(50)
	newer.steps(50)
	c.converges()
	if got := c.gapsSoFar(); got != gaps {
		t.Errorf("%d gaps more: the old agent was not refused", got-gaps)
	}
}

// A message that was under way while another agent took the place of its sender is refused,
// although its states were accepted before.
func TestMessageComesTooLate(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	relay := newRelay(t, s.URL)
	old := startAgent(t, relay.url, "node-a", agentOptions{})
	old.steps(20)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, old)
	c.converges()
	c.cancel() // it knows nothing of the newer agent
	<-c.done
	sprung := relay.holdAt("HPUB pleg.v1.ev.")
	old.steps(1)
	<-sprung
	newer := startAgent(t, s.URL, "node-a", agentOptions{})
	newer.steps(20)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, newer).converges()
	relay.release()
	if err := old.conn.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	newer.steps(20)
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, newer).converges()
	published := epochs(t, s.URL)
	for i, epoch := range published[slices.Index(published, newer.node.Epoch()):] {
		if epoch != newer.node.Epoch() {
			t.Errorf("message %d after the first one of the newer agent is of another: %v", i, published)
		}
	}
}

// epochs returns the epoch of each message in the stream.
func epochs(t *testing.T, url string) []string {
	t.Helper()
	stream, err := jetStream(t, connect(t, url)).Stream(t.Context(), fleet.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	var all []string
	for i := state.FirstSeq; i <= state.LastSeq; i++ {
		m, err := stream.GetMsg(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		var batch []struct{ Data pleg.Event }
		if err := json.Unmarshal(m.Data, &batch); err != nil {
			t.Fatal(err)
		}
		all = append(all, batch[0].Data.Epoch)
	}
	return all
}

// The clock of a node does not matter.
func TestClockOfANodeSetBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{offset: time.Hour})
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
	a.steps(30)
	c.converges()
	a.node.SetClock(-48 * time.Hour)
	a.steps(60)
	c.converges()
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
}

func (c *consumer) gapsSoFar() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Gaps
}

// hasGap and count are called with the consumer locked or at rest.
func (c *consumer) hasGap(node, epoch string) error {
	for _, ev := range c.events {
		if ev.Type == pleg.Gap && ev.Node == node && ev.Epoch == epoch {
			return nil
		}
	}
	return fmt.Errorf("no Gap of %s with the epoch %s", node, epoch)
}

func (c *consumer) count(t pleg.EventType, node string) int {
	n := 0
	for _, ev := range c.events {
		if ev.Type == t && ev.Node == node {
			n++
		}
	}
	return n
}
