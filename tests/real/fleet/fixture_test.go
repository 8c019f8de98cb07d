package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "test.example"

// patience is how long a test waits for an event that must come. Nothing is expected to take that
// long; it bounds a test that fails.
const patience = 50 * time.Second

// startServer returns a server that is killed at the end of the test.
func startServer(t testing.TB, config string) *natsd.Server {
	t.Helper()
	return startBinary(t, natsd.Binary, config)
}

func startBinary(t testing.TB, binary func() (string, error), config string) *natsd.Server {
	t.Helper()
	s := natsd.New(t, t.TempDir(), config)
	s.Binary = binary
	runServer(t, s)
	return s
}

func runServer(t testing.TB, s *natsd.Server) {
	t.Helper()
	kit.Must(t, s.Start(t.Context()))
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("log of the server:\n%s", s.Tail())
		}
	})
}

func connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := fleet.Connect(url, nil, options...)
	kit.Must(t, err)
	t.Cleanup(func() {
		closed := make(chan struct{})
		conn.SetClosedHandler(func(*nats.Conn) { close(closed) })
		conn.Close()
		<-closed
	})
	return conn
}

func jetStream(t testing.TB, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(conn)
	kit.Must(t, err)
	return js
}

func openStates(t *testing.T, url string) *fleet.States {
	t.Helper()
	states, err := fleet.OpenStates(t.Context(), jetStream(t, connect(t, url)), cluster, "")
	kit.Must(t, err)
	return states
}

// agent is a node and its publisher.
type agent struct {
	t    *testing.T
	name string
	url  string
	node *simNode
	// lives are all nodes of this name so far, by their epoch.
	mu    sync.Mutex
	lives map[string]*simNode

	o    agentOptions
	conn *nats.Conn
	stop func()
}

type agentOptions struct {
	// history is the number of events that the dispatcher keeps; if zero, 8192.
	history int
	// pods is the number of pods around which the node stays; if zero, 12.
	pods int
	// spoil, if not nil, changes the input of the publisher: an event with an empty status, or a
	// status with an empty event.
	spoil func(*pleg.Event, *pleg.PodStatus)
	// discard keeps no record of the events, neither here nor in a watch: checking each event takes
	// long.
	discard bool
	// conn is a connection to share; if nil, it opens its own.
	conn *nats.Conn
	// seed determines the changes. The first ones are made before the agent starts.
	seed   uint64
	first  int
	limits fleet.Limits
	// offset is added to the clock of the node.
	offset time.Duration
	health func(context.Context) (pleg.Status, error)
}

func startAgent(t *testing.T, url, name string, o agentOptions) *agent {
	t.Helper()
	node := newNode(t, name, o)
	a := &agent{t: t, name: name, url: url, node: node, lives: map[string]*simNode{node.Epoch(): node}, o: o}
	a.steps(o.first)
	a.publish(o)
	return a
}

// publish starts the publisher. Many that share a connection do not log.
func (a *agent) publish(o agentOptions) {
	a.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if a.conn = a.o.conn; a.conn == nil {
		a.conn, log = connect(a.t, a.url), nil
	}
	_, a.stop = publish(a.t, fleet.PublisherOptions{
		Conn: a.conn, Source: a.node, Node: a.name, Limits: o.limits, Health: o.health, Logger: log,
	})
}

// publish runs a publisher until stop is called, or the end of the test. It logs to the test unless
// there is another log.
func publish(t *testing.T, o fleet.PublisherOptions) (p *fleet.Publisher, stop func()) {
	t.Helper()
	o.Cluster = cluster
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	p, err := fleet.NewPublisher(o)
	kit.Must(t, err)
	end := kit.Run(t, p.Run)
	return p, func() { _ = end() } // Run reports the error
}

// restart ends the agent, as a crash would, and starts it again: a new epoch.
func (a *agent) restart() {
	a.t.Helper()
	a.stop()
	a.mu.Lock()
	a.node = a.node.Restart(a.t)
	a.lives[a.node.Epoch()] = a.node
	a.mu.Unlock()
	a.publish(agentOptions{})
}

func (a *agent) steps(n int) {
	for range n {
		a.step()
	}
}

// step makes a change, also while another goroutine restarts the agent.
func (a *agent) step() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node.Step()
}

// churn makes changes on each node until stop is called, or the end of the test.
func churn(t *testing.T, agents []*agent, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	for _, a := range agents {
		changes.Go(func() {
			for ctx.Err() == nil {
				a.steps(1)
				time.Sleep(pause)
			}
		})
	}
	stop = func() { cancel(); changes.Wait() }
	t.Cleanup(stop)
	return stop
}

func (a *agent) published(epoch string) []pleg.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	if node := a.lives[epoch]; node != nil {
		return node.Published()
	}
	return nil
}

// consumer is a watch and its oracle.
type consumer struct {
	t  *testing.T
	mu sync.Mutex
	*oracle
	events []fleet.Event
	last   time.Time // of an event
	// reasons counts the Gaps by their reason.
	reasons map[string]int
	// stall blocks the consumer while it is locked.
	stall  sync.Mutex
	cancel func()
	done   chan struct{}
	agents []*agent
}

// watch starts a consumer of everything that checks each event.
func watch(t *testing.T, url string, o fleet.WatchOptions, agents ...*agent) *consumer {
	t.Helper()
	return watchFrom(t, url, o, nil, agents...)
}

// watchFrom starts a consumer that has these events, a replay first, and resumes after their last position.
func watchFrom(t *testing.T, url string, o fleet.WatchOptions, had []fleet.Event, agents ...*agent) *consumer {
	t.Helper()
	c := &consumer{
		t: t, oracle: newOracle(o.Replay || had != nil), events: slices.Clone(had), done: make(chan struct{}), agents: agents, reasons: make(map[string]int),
	}
	c.AtLeast = make(map[string]promises.Truth)
	named := make(map[string]*agent)
	discard := false
	for _, a := range agents {
		c.AtLeast[a.name], named[a.name] = nil, a
		discard = discard || a.o.discard
	}
	c.Published = func(node, epoch string) []pleg.Event {
		if a := named[node]; a != nil {
			return a.published(epoch)
		}
		return nil
	}
	for _, ev := range had {
		c.Add(ev)
	}
	o.Cluster, o.Filter.NetworkEvents = cluster, true
	o.Disconnected = func(err error, _ time.Duration) {
		fmt.Fprintln(t.Output(), time.Now().Format("15:04:05.000"), "watch:", err)
	}
	js := jetStream(t, connect(t, url))
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() {
		defer close(c.done)
		for ev, err := range fleet.Watch(ctx, js, o) { //nolint:contextcheck // Fresh needs no context: it does not wait
			if err != nil {
				t.Error(err)
				return
			}
			c.stall.Lock()
			c.stall.Unlock() //nolint:staticcheck // the lock is only a way to wait
			c.mu.Lock()
			c.last = time.Now()
			if ev.Type == pleg.Gap {
				c.reasons[ev.Reason]++
			}
			if !discard {
				c.events = append(c.events, ev)
			}
			c.Add(ev)
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-c.done })
	return c
}

// until waits until ok returns nil: longer at a large scale.
func until(t testing.TB, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+20**scaleTime)
	defer cancel()
	kit.Must(t, process.Await(ctx, func(context.Context) error { return ok() }))
}

// eventually waits until ok, which is called with the consumer locked, returns nil.
func (c *consumer) eventually(ok func() error) {
	c.t.Helper()
	until(c.t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}

// converges waits until the consumer is synced and its state is the union of the agents' states.
func (c *consumer) converges() {
	c.t.Helper()
	c.eventually(func() error {
		truth := make(map[string]promises.Truth)
		for _, a := range c.agents {
			truth[a.name] = a.node.Truth()
		}
		if err := c.isSynced(); err != nil {
			return err
		}
		return c.Compare(truth)
	})
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

// got returns the events so far, the number of Gaps among them, and the time of the last event.
func (c *consumer) got() (events []fleet.Event, gaps int, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events, c.Gaps, c.last
}

// count returns the number of events that the consumer has received.
func (c *consumer) count() int {
	events, _, _ := c.got()
	return len(events)
}

// newest returns the position of the last event that the consumer has received.
func (c *consumer) newest() fleet.Position {
	events, _, _ := c.got()
	return events[len(events)-1].At
}

func (c *consumer) gapsSoFar() int {
	_, gaps, _ := c.got()
	return gaps
}

// hasGaps fails unless the consumer has received this number of Gaps.
func (c *consumer) hasGaps(want int) {
	c.t.Helper()
	if got := c.gapsSoFar(); got != want {
		c.t.Errorf("%d Gaps, want %d", got, want)
	}
}

// wantsAtLeastThis makes the next Synced break a promise unless the present state of the nodes came
// before it.
func (c *consumer) wantsAtLeastThis() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.agents {
		c.AtLeast[a.name] = a.node.Truth()
	}
}

// isSynced returns an error unless the last replay is complete. It is called with the consumer locked.
func (c *consumer) isSynced() error {
	if !c.Synced {
		return fmt.Errorf("not synced after %d events", len(c.events))
	}
	return nil
}

// field is a server, two nodes and a watch that has received everything. The connection of the
// first node goes through a relay.
type field struct {
	t      *testing.T
	server *natsd.Server
	relay  *relay
	a, b   *agent
	*consumer
}

type fieldOptions struct {
	// config configures the server; a is the first agent.
	config string
	a      agentOptions
	// behind is true if the connection of the watch goes through the relay too.
	behind bool
}

func startField(t *testing.T, o fieldOptions) *field {
	t.Helper()
	f := &field{t: t, server: startServer(t, o.config)}
	f.relay = newRelay(t, f.server.URL)
	f.a = startAgent(t, f.relay.url, "node-a", o.a)
	f.b = startAgent(t, f.server.URL, "node-b.example.com", agentOptions{limits: o.a.limits})
	from := f.server.URL
	if o.behind {
		from = f.relay.url
	}
	f.consumer = watch(t, from, fleet.WatchOptions{Replay: true}, f.a, f.b)
	f.steps(20)
	f.converges()
	return f
}

// steps makes changes on both nodes.
func (f *field) steps(n int) {
	f.a.steps(n)
	f.b.steps(n)
}

// late starts a watch that comes late, and waits until it has received everything.
func (f *field) late() *consumer {
	f.t.Helper()
	c := watch(f.t, f.server.URL, fleet.WatchOptions{Replay: true}, f.a, f.b)
	c.converges()
	return c
}

// restart starts the server after it was killed.
func (f *field) restart() { kit.Must(f.t, f.server.Start(f.t.Context())) }

// streamAt returns the stream of the cluster on a server.
func streamAt(t testing.TB, url string) jetstream.Stream {
	t.Helper()
	stream, err := jetStream(t, connect(t, url)).Stream(t.Context(), streams[0])
	kit.Must(t, err)
	return stream
}

func stateOf(t testing.TB, stream jetstream.Stream) jetstream.StreamState {
	t.Helper()
	info, err := stream.Info(t.Context())
	kit.Must(t, err)
	return info.State
}

// configure changes the stream of the cluster.
func configure(t testing.TB, url string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	config := streamAt(t, url).CachedInfo().Config
	change(&config)
	_, err := jetStream(t, connect(t, url)).UpdateStream(t.Context(), config)
	kit.Must(t, err)
}

// eventIn returns the event in a message of the stream.
func eventIn(t *testing.T, message []byte) pleg.Event {
	t.Helper()
	var m struct{ Data pleg.Event }
	kit.Must(t, json.Unmarshal(message, &m))
	return m.Data
}

// eachMessage calls each for all messages in the stream.
func eachMessage(t *testing.T, url string, each func(*jetstream.RawStreamMsg)) {
	t.Helper()
	stream := streamAt(t, url)
	state := stateOf(t, stream)
	for i := state.FirstSeq; i <= state.LastSeq; i++ {
		m, err := stream.GetMsg(t.Context(), i)
		kit.Must(t, err)
		each(m)
	}
}
