package fleet_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/oracle"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/simnode"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "test.example"

// patience is how long a test waits for what must come. Nothing is expected to take that
// long; it bounds a test that fails.
const patience = 90 * time.Second

// startServer returns a server that is killed at the end of the test.
func startServer(t *testing.T, config string) *natsd.Server {
	t.Helper()
	s, err := natsd.New(t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	return s
}

// startOldServer returns a nats-server that fleet does not use. It is killed at the end of
// the test.
func startOldServer(t *testing.T) *natsd.Server {
	t.Helper()
	s, err := natsd.New(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s.Binary = natsd.OldBinary
	runServer(t, s)
	return s
}

func runServer(t *testing.T, s *natsd.Server) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("log of the server:\n%s", s.Tail())
		}
	})
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	return connectWith(t, url, fleet.ConnectOptions{})
}

func connectWith(t *testing.T, url string, o fleet.ConnectOptions) *nats.Conn {
	t.Helper()
	conn, err := fleet.Connect(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		conn.SetClosedHandler(func(*nats.Conn) { close(closed) })
		conn.Close()
		<-closed
	})
	return conn
}

func jetStream(t *testing.T, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// agent is a node and its publisher.
type agent struct {
	t    *testing.T
	name string
	url  string
	node *simnode.Node
	// lives are all nodes of this name so far, by their epoch.
	mu    sync.Mutex
	lives map[string]*simnode.Node

	conn *nats.Conn
	stop func()
}

type agentOptions struct {
	history int
	// pods is the number of pods around which the node stays; if zero, 12.
	pods int
	// discard keeps no record of the events: to check each against it takes long.
	discard bool
	limits  fleet.Limits
	offset  time.Duration
	// backoff is the time between two attempts; if zero, a short one.
	backoff time.Duration
	// stateTTL is how long the server keeps the states; if zero, the default.
	stateTTL time.Duration
}

func startAgent(t *testing.T, url, name string, o agentOptions) *agent {
	t.Helper()
	if o.history == 0 {
		o.history = 8192
	}
	node, err := simnode.New(simnode.Options{Name: name, Pods: cmp.Or(o.pods, 12), History: o.history, Seed: 7, Offset: o.offset, Discard: o.discard})
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, name: name, url: url, node: node, lives: map[string]*simnode.Node{node.Epoch(): node}}
	a.publish(o)
	t.Cleanup(func() {
		a.stop()
		a.node.Close()
	})
	return a
}

// publish starts the publisher.
func (a *agent) publish(o agentOptions) {
	a.t.Helper()
	a.conn = connect(a.t, a.url)
	p, err := fleet.NewPublisher(fleet.PublisherOptions{
		Conn: a.conn, Source: a.node, Cluster: cluster, Node: a.name, Limits: o.limits,
		MinBackoff: cmp.Or(o.backoff, 20*time.Millisecond), MaxBackoff: cmp.Or(o.backoff, 500*time.Millisecond), PublishTimeout: 2 * time.Second, StateTTL: o.stateTTL,
		Logger: slog.New(slog.NewTextHandler(a.t.Output(), nil)),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			a.t.Errorf("publisher of %s: %v", a.name, err)
		}
	}()
	a.stop = func() { cancel(); <-done }
}

// restart ends the agent, as a crash would, and starts it again: a new epoch.
func (a *agent) restart() {
	a.t.Helper()
	a.stop()
	node, err := a.node.Restart()
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	a.node = node
	a.lives[node.Epoch()] = node
	a.mu.Unlock()
	a.publish(agentOptions{})
}

func (a *agent) steps(n int) {
	for range n {
		a.node.Step()
	}
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
	*oracle.Consumer
	broken error
	events []fleet.Event
	// stall blocks the consumer while it is locked.
	stall  sync.Mutex
	cancel func()
	done   chan struct{}
	agents []*agent
}

// watch starts a consumer of everything that checks each event.
func watch(t *testing.T, url string, o fleet.WatchOptions, agents ...*agent) *consumer {
	t.Helper()
	c := &consumer{t: t, Consumer: oracle.New(o.Replay), done: make(chan struct{}), agents: agents}
	c.AtLeast = make(map[string]promises.Truth)
	for _, a := range agents {
		c.AtLeast[a.name] = nil
	}
	c.Published = func(node, epoch string) []pleg.Event {
		for _, a := range agents {
			if a.name == node {
				return a.published(epoch)
			}
		}
		return nil
	}
	o.Cluster, o.Filter.NetworkEvents = cluster, true
	js := jetStream(t, connect(t, url))
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() {
		defer close(c.done)
		for ev, err := range fleet.Watch(ctx, js, o) {
			c.stall.Lock()
			c.stall.Unlock() //nolint:staticcheck // it only waits
			c.mu.Lock()
			if err == nil {
				c.events = append(c.events, ev)
				c.Add(ev)
			}
			c.broken = errors.Join(c.broken, err)
			c.mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-c.done })
	return c
}

// eventually waits until ok, which is called with the consumer locked, returns nil.
func (c *consumer) eventually(ok func() error) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		c.mu.Lock()
		err := ok()
		if c.broken != nil {
			err = c.broken
		}
		broken := c.broken != nil
		c.mu.Unlock()
		if err == nil {
			return
		}
		if broken || time.Now().After(deadline) {
			c.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// converges waits until the consumer is synced and has the union of the agents' states.
func (c *consumer) converges() {
	c.t.Helper()
	c.eventually(func() error {
		truth := make(map[string]promises.Truth)
		for _, a := range c.agents {
			truth[a.name] = a.node.Truth()
		}
		if !c.Synced {
			return fmt.Errorf("not synced after %d events", len(c.events))
		}
		return c.Compare(truth)
	})
}
