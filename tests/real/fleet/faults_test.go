package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const anyGap = "any"

// smallMessages makes 1 MiB of messages wait for a consumer that does not read.
const smallMessages = "max_payload: 65536"

// After each fault the watch, and a watch that comes late, have received everything within a time.
// No event is missing, unless a Gap of the first node says so.
func TestFaults(t *testing.T) {
	t.Parallel()
	const stoppedFor = 30 * time.Second
	shortLived := fleet.Limits{MaxAge: 12 * time.Second} // the node's own message is written again every 6 s
	var large atomic.Bool
	tests := []struct {
		name   string
		o      fieldOptions
		times  int // once, if zero
		fault  func(f *field)
		within time.Duration
		gap    string // the reason of the Gap; empty if there is none, anyGap if there may be some
	}{
		{name: "server killed", times: 3, within: 10 * time.Second, fault: func(f *field) {
			f.a.steps(40)
			f.server.Kill()
			f.steps(100)
			f.restart()
		}},
		{name: "server stopped for 30 s", within: 15 * time.Second, fault: func(f *field) {
			kit.Must(f.t, f.server.Pause())
			for range 30 {
				f.a.steps(5)
				time.Sleep(stoppedFor / 30)
			}
			kit.Must(f.t, f.server.Continue())
		}},
		{name: "connection cut again and again", within: 10 * time.Second, fault: func(f *field) {
			for range 30 {
				f.a.steps(20)
				f.relay.cut()
			}
		}},
		{name: "dead path", o: fieldOptions{behind: true}, within: 30 * time.Second, fault: func(f *field) {
			f.relay.strand() // the relay passes nothing any more, without an end of the connection
			f.a.steps(20)
		}},
		// Heartbeats come, as from a server that follows the leader and does not get the leader's
		// messages.
		{name: "consumer sends heartbeats alone", within: 30 * time.Second, fault: func(f *field) {
			stream := streamAt(f.t, f.server.URL)
			for consumer := range stream.ListConsumers(f.t.Context()).Info() {
				_, err := stream.PauseConsumer(f.t.Context(), consumer.Name, time.Now().Add(time.Hour))
				kit.Must(f.t, err)
			}
			f.steps(20)
		}},
		// States too: a watch that begins late finds nothing stale.
		{name: "messages lost under way", times: 3, within: 10 * time.Second, fault: func(f *field) { f.a.lose(f.relay) }},
		{name: "the node's own message lost", o: fieldOptions{a: agentOptions{limits: shortLived}}, within: 10 * time.Second, fault: func(f *field) {
			<-f.relay.holdAt("node-a.= ")
			f.relay.cut()
			f.relay.release()
			f.a.steps(1)
		}},
		{name: "the node's own message late", o: fieldOptions{a: agentOptions{limits: fleet.Limits{MaxAge: 3 * shortLived.MaxAge}}}, within: 10 * time.Second, fault: func(f *field) {
			<-f.relay.holdAt("node-a.= ")
			time.Sleep(7 * time.Second) // the agent has given up its message
			f.relay.release()
			f.a.steps(1)
		}},
		{name: "answer to the node's own message lost", o: fieldOptions{a: agentOptions{limits: shortLived}}, within: 10 * time.Second, fault: func(f *field) {
			f.loseAnswers("pleg.v2.test_example.node-a.=", 0)
			f.a.steps(1)
		}},
		{name: "more events than wait for the agent", within: 10 * time.Second, fault: func(f *field) {
			f.relay.hold()
			f.a.steps(1500)
			f.relay.release()
		}},
		{name: "agent restarted", times: 5, within: 10 * time.Second, gap: pleg.OtherEpoch, fault: func(f *field) {
			f.steps(30)
			f.a.restart()
		}},
		{name: "agent restarted, 200 pods far from the server", o: fieldOptions{a: agentOptions{pods: 200}}, within: 5 * time.Second, gap: pleg.OtherEpoch, fault: func(f *field) {
			f.a.steps(500)
			f.converges()
			f.relay.delay.Store(int64(100 * time.Millisecond)) // 200 ms to the server and back
			f.a.restart()
			f.a.steps(1)
		}},
		{name: "node forgotten, connection lost in its replay", within: 10 * time.Second, gap: anyGap, fault: func(f *field) {
			f.a.stop()
			kit.Must(f.t, openStates(f.t, f.server.URL).Forget(f.t.Context(), f.a.name))
			sprung := f.relay.holdAt("node-a." + "node-a-")
			f.a.restart()
			<-sprung
			f.relay.cut()
			f.a.steps(60) // pods of the first replay are gone
			f.relay.release()
		}},
		{name: "history too short", o: fieldOptions{a: agentOptions{history: 20}}, within: 10 * time.Second, gap: pleg.HistoryTooShort, fault: func(f *field) {
			f.server.Kill()
			f.a.steps(1)
			time.Sleep(time.Second) // for the agent to fail, before the Gap of its source
			f.a.steps(1000)
			f.restart()
		}},
		{name: "clock set back", o: fieldOptions{a: agentOptions{offset: time.Hour}}, within: 10 * time.Second, fault: func(f *field) {
			f.a.node.SetClock(-48 * time.Hour)
			f.a.steps(60)
		}},
		{name: "node forgotten", within: 10 * time.Second, gap: anyGap, fault: func(f *field) {
			f.a.stop()
			states := openStates(f.t, f.server.URL)
			kit.Must(f.t, states.Forget(f.t.Context(), f.a.name))
			kit.Must(f.t, states.Check(f.t.Context(), []string{f.b.name}))
			watch(f.t, f.server.URL, fleet.WatchOptions{Replay: true}, f.b).converges()
			f.a.publish(agentOptions{})
			f.a.steps(5)
		}},
		// A consumer that comes then is synced with every pod of the node, although the states are of two epochs.
		{name: "agent begins slowly", within: 10 * time.Second, gap: pleg.OtherEpoch, fault: func(f *field) {
			sprung := f.relay.holdAt("node.synced.v1")
			f.a.restart()
			<-sprung
			late := watch(f.t, f.server.URL, fleet.WatchOptions{Replay: true}, f.a, f.b)
			late.wantsAtLeastThis()
			late.eventually(late.isSynced)
			f.relay.release()
			late.converges()
		}},
		// The consumer, which did not read for a while, gets newer messages of another node only. They do not
		// hide that the last message of a quiet node is missing.
		{name: "message of a quiet node removed", o: fieldOptions{config: smallMessages}, within: 30 * time.Second, gap: anyGap, fault: func(f *field) {
			stream := streamAt(f.t, f.server.URL)
			f.stall.Lock()
			for end := stateOf(f.t, stream).Bytes + 3<<20; stateOf(f.t, stream).Bytes < end; { // more than waits
				f.a.steps(50)
			}
			f.b.steps(3)
			f.late()
			kit.Must(f.t, stream.Purge(f.t.Context(), jetstream.WithPurgeSequence(stateOf(f.t, stream).LastSeq+1)))
			f.a.steps(5)
			f.stall.Unlock()
		}},
		// The server refuses one message and accepts the messages behind it, and the agent is killed before
		// it can repair the hole. The next agent, of the same epoch, leaves no stale state.
		{name: "agent dies after a refused message", within: 15 * time.Second, gap: anyGap, o: fieldOptions{a: agentOptions{spoil: func(_ *pleg.Event, s *pleg.PodStatus) {
			if large.Load() && s.Namespace == "shop" {
				s.IPs = []string{strings.Repeat("x", 20<<10)}
			}
		}}}, fault: func(f *field) {
			setLimit := func(size int32) {
				configure(f.t, f.server.URL, func(c *jetstream.StreamConfig) { c.MaxMsgSize = size })
			}
			gaps := f.gapsSoFar()
			f.relay.hold() // the messages after the first one come in one batch
			f.a.steps(1)
			time.Sleep(100 * time.Millisecond)
			setLimit(16 << 10)
			large.Store(true)
			f.a.steps(60)
			f.relay.release()
			f.eventually(func() error { // something behind a refused message has come
				if f.Gaps == gaps {
					return errors.New("no Gap")
				}
				return nil
			})
			f.a.stop()
			large.Store(false)
			setLimit(-1)
			f.a.publish(agentOptions{})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := startField(t, tt.o)
			for range max(1, tt.times) {
				before := f.count()
				tt.fault(f)
				if tt.gap != "" {
					f.eventually(func() error { return f.hasGap(before, tt.gap) })
				}
				f.within(tt.within)
				f.late()
				f.eventually(func() error { return f.hasGap(before, tt.gap) })
			}
		})
	}
}

// hasGap returns an error unless the events after the first ones contain the Gaps of the first node
// for this reason, and no others. It is called with the consumer locked.
func (f *field) hasGap(after int, reason string) error {
	found := reason == "" || reason == anyGap
	for _, ev := range f.events[after:] {
		if ev.Type != pleg.Gap || reason == anyGap {
			continue
		}
		found = true
		if ev.Reason != reason || ev.Node != f.a.name || (ev.Missed > 0) != (reason == pleg.HistoryTooShort) {
			f.t.Errorf("the Gap %+v, want only Gaps of %s with the reason %q", ev, f.a.name, reason)
		}
		if ev.Epoch == f.a.node.Epoch() {
			return nil
		}
	}
	if !found {
		return fmt.Errorf("no Gap with the reason %q", reason)
	}
	return nil
}
