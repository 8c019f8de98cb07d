package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// replaced makes another agent at a server publish as the first node of a field. The watch then
// expects the events of that agent.
func (f *field) replaced(url string) (old, newer *agent) {
	f.t.Helper()
	old, newer = f.a, startAgent(f.t, url, "node-a", agentOptions{})
	old.mu.Lock()
	old.lives[newer.node.Epoch()] = newer.node
	old.mu.Unlock()
	f.publishes(newer)
	return old, newer
}

// publishes makes an agent publish as the first node.
func (f *field) publishes(a *agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.a, f.agents = a, []*agent{a, f.b}
}

// Of two agents of one node, the newer one publishes and the older one waits. When the newer agent
// has ended, the older agent continues: at once, or when the lease has expired.
func TestTwoAgentsOfOneNode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		end    func(newer *agent, path *relay)
		within time.Duration
	}{
		{"stopped", func(newer *agent, _ *relay) { newer.stop() }, 10 * time.Second},
		{"vanished", func(_ *agent, path *relay) { path.hold() }, fleet.LeaseTTL + 5*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := startField(t, fieldOptions{})
			path, before := newRelay(t, f.server.URL), f.count()
			old, newer := f.replaced(path.url)
			f.eventually(func() error { return f.hasGap(before, pleg.OtherEpoch) })
			leases, err := jetStream(t, connect(t, f.server.URL)).KeyValue(t.Context(), fleet.AgentBucket)
			kit.Must(t, err)
			both := func() (holders map[string]bool) {
				holders = make(map[string]bool)
				for range 50 { // longer than an agent waits between two attempts
					old.steps(5)
					newer.steps(5)
					time.Sleep(20 * time.Millisecond)
					lease, err := leases.Get(t.Context(), "test_example.node-a")
					kit.Must(t, err)
					var of struct{ Agent string }
					kit.Must(t, json.Unmarshal(lease.Value(), &of))
					holders[of.Agent] = true
				}
				f.within(10 * time.Second)
				return holders
			}
			both()
			gaps := f.gapsSoFar()
			if holders := both(); len(holders) > 1 {
				t.Errorf("the agents %v take turns", holders)
			}
			f.hasGaps(gaps)
			tt.end(newer, path)
			f.publishes(old)
			f.within(tt.within)
		})
	}
}

// Events of one pod that are in flight while another node publishes are all stored, in their order: the server
// accepts no event in the place of a refused one.
func TestRowWhileAnotherNodePublishes(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	r, js := newRelay(t, s.URL), jetStream(t, connect(t, s.URL))
	source := newBurst(9)
	p, _ := publish(t, fleet.PublisherOptions{Conn: connect(t, r.url), Source: source, Node: "node-a"})
	began := p.Status().LastAck
	until(t, func() error {
		if p.Status().LastAck.Equal(began) {
			return errors.New("the agent has not begun")
		}
		return nil
	})
	sprung := r.holdAt(`"seq":2,`) // within the second message of the row
	close(source.begin)
	<-sprung
	_, err := js.Publish(t.Context(), "pleg.v2.test_example.node-b.=", []byte("{}"))
	kit.Must(t, err)
	r.release()
	var stored []uint64
	until(t, func() error {
		stored = nil
		eachMessage(t, s.URL, func(m *jetstream.RawStreamMsg) {
			if ev := eventIn(t, m.Data); ev.PodUID != "" {
				stored = append(stored, ev.Seq)
			}
		})
		if !slices.Contains(stored, 9) {
			return fmt.Errorf("the events %d are stored", stored)
		}
		return nil
	})
	if !slices.Equal(stored, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("the events %d are stored, want each once, in their order", stored)
	}
}

// An agent that ends after another one has taken its place does not change the other agent's lease.
func TestEndOfAnOldAgent(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	leases, err := jetStream(t, connect(t, f.server.URL)).KeyValue(t.Context(), fleet.AgentBucket)
	kit.Must(t, err)
	type lease struct {
		Agent string
		Ended bool
	}
	holder := func() (h lease) {
		entry, err := leases.Get(t.Context(), "test_example.node-a")
		kit.Must(t, err)
		kit.Must(t, json.Unmarshal(entry.Value(), &h))
		return h
	}
	first := holder()
	old, _ := f.replaced(f.server.URL)
	process.Eventually(t, "the other agent holds the lease", func(context.Context) error {
		if holder() == first {
			return errors.New("the first agent holds it")
		}
		return nil
	})
	old.stop()
	if h := holder(); h.Agent == first.Agent || h.Ended {
		t.Errorf("the lease is %+v, want that of the other agent than %+v", h, first)
	}
}

// Another agent takes the place of an agent that was stopped with a message in flight, although its
// states were accepted before. Once it comes back, that message and all later ones are refused.
func TestOldAgentComesBack(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	sprung := f.relay.holdAt("HPUB pleg.v2.")
	f.a.steps(1)
	<-sprung
	before := f.count()
	old, newer := f.replaced(f.server.URL)
	newer.steps(20)
	f.eventually(func() error { return f.hasGap(before, pleg.OtherEpoch) })
	f.within(10 * time.Second)
	gaps := f.gapsSoFar()
	old.steps(50)
	f.relay.release()
	kit.Must(t, old.conn.FlushTimeout(patience))
	old.steps(50)
	newer.steps(50)
	f.within(10 * time.Second)
	f.hasGaps(gaps)
	f.late()
	var published []string // the epoch of each event of the node
	eachMessage(t, f.server.URL, func(m *jetstream.RawStreamMsg) {
		if ev := eventIn(t, m.Data); strings.HasPrefix(m.Subject, "pleg.v2.test_example.node-a.") && ev.PodUID != "" {
			published = append(published, ev.Epoch)
		}
	})
	for i, epoch := range published[slices.Index(published, newer.node.Epoch()):] {
		if epoch != newer.node.Epoch() {
			t.Errorf("message %d after the first one of the newer agent is of another: %v", i, published)
		}
	}
}
