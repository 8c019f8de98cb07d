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
)

// replaced makes another agent at a server publish as the first node of a field. The watch then
// wants what it publishes.
func (f *field) replaced(url string) (old, newer *agent) {
	f.t.Helper()
	old, newer = f.a, startAgent(f.t, url, "node-a", agentOptions{})
	old.mu.Lock()
	old.lives[newer.node.Epoch()] = newer.node
	old.mu.Unlock()
	f.publishes(newer)
	return old, newer
}

// publishes makes an agent the one that publishes as the first node.
func (f *field) publishes(a *agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.a, f.agents = a, []*agent{a, f.b}
}

// Of two agents of one node, the newer one publishes and the older one waits. When the
// newer one has ended, the older one goes on: at once, or when the lease has expired.
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

// An agent that was stopped while another one took its place is refused.
func TestOldAgentComesBack(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.relay.hold()
	before := f.count()
	old, newer := f.replaced(f.server.URL)
	newer.steps(20)
	f.eventually(func() error { return f.hasGap(before, pleg.OtherEpoch) })
	f.within(10 * time.Second)
	gaps := f.gapsSoFar()
	old.steps(50)
	f.relay.release()
	old.steps(50)
	newer.steps(50)
	f.within(10 * time.Second)
	f.hasGaps(gaps) // the old agent was refused
}

// A state of another epoch counts if it was written after the node's Gap, by an agent that begins again.
// What an agent wrote while another one took its place does not.
func TestStateOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		published uint64 // how many messages of the node followed the state
		events    string
	}{
		"replaced": {1, "gap synced"},
		"new":      {0, "gap u synced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "")
			a := startAgent(t, s.URL, "node-a", agentOptions{first: 20})
			f := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
			f.converges()
			from := f.newest()
			before := f.count()
			a.restart()
			f.eventually(func() error {
				if ev := f.events[len(f.events)-1]; len(f.events) == before || ev.Type != pleg.Synced {
					return fmt.Errorf("the last event is %v", ev.Type)
				}
				return nil
			})
			js := jetStream(t, connect(t, s.URL))
			events, err := js.Stream(t.Context(), fleet.EventStream)
			kit.Must(t, err)
			putOther(t, js, events.CachedInfo().State.LastSeq-tt.published)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var got []string
			for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: cluster, After: &from}) {
				switch {
				case err != nil:
					t.Fatal(err)
				case ev.Type == pleg.Gap:
					got = append(got, "gap")
				case ev.PodUID == "u":
					got = append(got, "u")
				case ev.Type == pleg.Synced && ev.Node != "":
					got = append(got, "synced")
				}
				if len(got) > 0 && got[len(got)-1] == "synced" {
					break
				}
			}
			if got := strings.Join(got, " "); got != tt.events {
				t.Errorf("%q, want %q", got, tt.events)
			}
			states, err := fleet.OpenStates(t.Context(), js, cluster)
			kit.Must(t, err)
			_, ok, err := states.Pod(t.Context(), "node-a", "shop", "u")
			kit.Must(t, err)
			if ok != (tt.published == 0) {
				t.Errorf("the bucket has the pod: %v", ok)
			}
		})
	}
}

// A consumer that comes while an agent begins again is synced with every pod of its node, although the
// states are of two epochs.
func TestSyncedIsCompleteWhileAgentBegins(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.converges()
	sprung := f.relay.holdAt("HPUB $KV." + fleet.StateBucket + ".test_example.node-a ")
	f.a.restart()
	<-sprung
	late := watch(t, f.server.URL, fleet.WatchOptions{Replay: true}, f.a, f.b)
	late.wantsAtLeastThis()
	late.eventually(late.isSynced)
	f.relay.release()
	late.converges()
	f.converges()
}

// A state of another epoch includes all events of its pod that the stream still has of the epoch before.
func TestEventsOlderThanStateOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.converges()
	from := f.newest()
	js := jetStream(t, connect(t, f.server.URL))
	events, err := js.Stream(t.Context(), fleet.EventStream)
	kit.Must(t, err)
	missing := events.CachedInfo().State.LastSeq + 2
	for range 3 { // a message each, or several
		before := f.count()
		for f.count() == before {
			f.a.steps(1)
			f.converges()
		}
	}
	kit.Must(t, events.DeleteMsg(t.Context(), missing)) // so that the states are read
	info, err := events.Info(t.Context())
	kit.Must(t, err)
	last := f.events[len(f.events)-1]
	states, err := js.KeyValue(t.Context(), fleet.StateBucket)
	kit.Must(t, err)
	key := fmt.Sprintf("test_example.node-a.%s.%s", last.PodNamespace, last.PodUID)
	_, err = states.PutString(t.Context(), key, fmt.Sprintf(`{"epoch": "other", "seq": 1, "after": %d, "uid": %q, "events": [{"type": "ContainerStarted", "podUID": %[2]q}]}`,
		info.State.LastSeq, last.PodUID))
	kit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	replayed := false
	for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: cluster, After: &from}) {
		kit.Must(t, err)
		replayed = replayed || ev.PodUID == last.PodUID && ev.Replayed
		if replayed && ev.PodUID == last.PodUID && !ev.Replayed {
			t.Errorf("event %d of the pod comes after the newer state", ev.Seq)
		}
		if ev.Type == pleg.Synced && ev.Node == "" {
			break
		}
	}
	if !replayed {
		t.Error("the newer state is not in the replay")
	}
}

// putOther writes the state of a pod of the first node in another epoch, after a message of the node.
func putOther(t *testing.T, js jetstream.JetStream, after uint64) jetstream.KeyValue {
	t.Helper()
	states, err := js.KeyValue(t.Context(), fleet.StateBucket)
	kit.Must(t, err)
	if _, err := states.PutString(t.Context(), otherKey, fmt.Sprintf(`{"epoch": "other", "seq": 1, "after": %d, "uid": "u", "namespace": "shop", "events": [{"type": "ContainerStarted", "podUID": "u"}]}`, after)); err != nil {
		t.Fatal(err)
	}
	return states
}

const otherKey = "test_example.node-a.shop.u"

// An agent that reads its states again does not take over one of another epoch.
func TestStateOfAnotherEpochIsRemoved(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{a: agentOptions{stateTTL: 8 * time.Second}})
	js := jetStream(t, connect(t, f.server.URL))
	states := putOther(t, js, 1)
	if _, err := js.Publish(t.Context(), "pleg.v1.ev.test_example.node-a", []byte("of somebody else")); err != nil {
		t.Fatal(err)
	}
	f.steps(5)
	until(t, func() error {
		if _, err := states.Get(t.Context(), otherKey); !errors.Is(err, jetstream.ErrKeyNotFound) {
			return errors.Join(errors.New("the state is still there"), err)
		}
		return nil
	})
	f.converges()
}

// A message that was under way while another agent took the place of its sender is refused,
// although its states were accepted before.
func TestMessageComesTooLate(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.cancel() // it knows nothing of the newer agent
	<-f.done
	sprung := f.relay.holdAt("HPUB pleg.v1.ev.")
	f.a.steps(1)
	<-sprung
	old, newer := f.replaced(f.server.URL)
	newer.steps(20)
	f.late()
	f.relay.release()
	kit.Must(t, old.conn.FlushTimeout(patience))
	newer.steps(20)
	f.late()
	var published []string // the epoch of each message of the node
	eachMessage(t, f.server.URL, func(m *jetstream.RawStreamMsg) {
		if m.Subject == "pleg.v1.ev.test_example.node-a" {
			published = append(published, eventsIn(t, m.Data)[0].Epoch)
		}
	})
	for i, epoch := range published[slices.Index(published, newer.node.Epoch()):] {
		if epoch != newer.node.Epoch() {
			t.Errorf("message %d after the first one of the newer agent is of another: %v", i, published)
		}
	}
}
