package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

// startAgents starts a server and agents with this number of pods.
func startAgents(t *testing.T, pods int) (s *natsd.Server, agents []*agent) {
	t.Helper()
	s = startServer(t, "")
	for i := range 6 {
		agents = append(agents, startAgent(t, s.URL, fmt.Sprintf("node-%d", i), agentOptions{pods: pods, first: pods * 3 / 2}))
	}
	return s, agents
}

// Watches that begin in the middle of changes are synced with everything, although the states are
// rewritten while they are read, also when the server is killed and when agents begin again.
func TestSyncedIsCompleteInChurn(t *testing.T) {
	t.Parallel()
	s, agents := startAgents(t, 60)
	first := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
	first.converges()
	resting := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
	resting.wantsAtLeastThis()
	resting.converges()
	resting.cancel()
	stop := churn(t, agents, 10*time.Millisecond)
	all := []*consumer{first}
	for i := range 4 {
		c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
		c.eventually(c.isSynced)
		all = append(all, c)
		if i == 1 {
			s.Kill()
			kit.Must(t, s.Start(t.Context()))
		}
	}
	stop()
	agents[0].restart()
	agents[5].restart()
	for _, c := range all {
		c.converges()
	}
}

// A watch that resumes at any event of another watch gets the later events, none twice, and then
// Synced. So does a watch of a single node.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	s, agents := startAgents(t, 4)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
	c.converges()
	first := c.count() - 1
	live := watch(t, s.URL, fleet.WatchOptions{Bookmarks: true}) // the first position of this watch comes before any event
	live.eventually(func() error {
		if len(live.events) == 0 {
			return errors.New("no Bookmark")
		}
		return nil
	})
	marks, _, _ := live.got()
	mark := marks[0]
	if mark.Type != pleg.Bookmark || mark.At == "" {
		t.Fatalf("the first event is %+v, want a Bookmark with a position", mark)
	}
	for range 10 {
		for _, a := range agents {
			a.steps(1)
		}
	}
	named := func(events []fleet.Event, nodes ...string) map[string]int {
		got := make(map[string]int)
		for _, ev := range events {
			if ev.PodUID != "" && (nodes == nil || slices.Contains(nodes, ev.Node)) {
				got[fmt.Sprintf("%s/%d", ev.Node, ev.Seq)]++
			}
		}
		return got
	}
	c.eventually(func() error {
		for _, a := range agents {
			if last := fmt.Sprintf("%s/%d", a.name, len(a.node.Published())); named(c.events)[last] == 0 {
				return fmt.Errorf("no event %s", last)
			}
		}
		return nil
	})
	events, _, _ := c.got()
	resumes := func(at fleet.Position, want map[string]int, nodes ...string) {
		t.Helper()
		r := watch(t, s.URL, fleet.WatchOptions{After: &at, Nodes: nodes}, agents...)
		r.eventually(r.isSynced)
		all, gaps, _ := r.got()
		synced := slices.IndexFunc(all, func(ev fleet.Event) bool { return ev.Type == pleg.Synced && ev.Node == "" })
		if got := named(all[:synced]); gaps > 0 || !maps.Equal(got, want) {
			t.Errorf("after %v: %d Gaps, and Synced came after %v, want %v", at, gaps, got, want)
		}
		r.cancel()
	}
	for i := first; i < len(events); i += 3 {
		at := events[i].At
		if at == "" {
			t.Fatalf("event %d after %d has no position", i, first)
		}
		resumes(at, named(events[i+1:]))
		resumes(at, named(events[i+1:], agents[2].name), agents[2].name)
	}
	resumes(mark.At, named(events[first+1:]))
}

// A position of another stream, of the future, or of messages that the stream no longer contains, costs a Gap
// about all nodes, and the state of all: one Gap, also if the reader takes longer for it than a request may take.
func TestBadPositionIsAGap(t *testing.T) {
	t.Parallel()
	s, agents := startAgents(t, 4)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
	c.converges()
	past := c.newest()
	for _, a := range agents {
		a.steps(5)
	}
	c.converges()
	future := regexp.MustCompile(`:.*`).ReplaceAllString(string(past), ":1000000:0")
	published := c.gapsSoFar() + len(agents)
	kit.Must(t, streamAt(t, s.URL).Purge(t.Context()))
	c.eventually(func() error { // the agents notice it
		if c.Gaps < published {
			return fmt.Errorf("%d Gaps, want %d", c.Gaps, published)
		}
		return nil
	})
	c.converges()
	for _, at := range []fleet.Position{past, fleet.Position(future), "1:7:0", ""} {
		resumed := watch(t, s.URL, fleet.WatchOptions{After: &at}, agents...)
		if at == "" {
			resumed.stall.Lock()
			time.Sleep(11 * time.Second)
			resumed.stall.Unlock()
		}
		resumed.converges()
		events, gaps, _ := resumed.got()
		if first := slices.IndexFunc(events, func(ev fleet.Event) bool { return ev.Type == pleg.Gap }); gaps != 1 || events[first].Node != "" || first > 0 {
			t.Errorf("after %q: %d Gaps, want one of all nodes", at, gaps)
		}
	}
}

// A new stream contains no message after which a watch begins.
func TestWatchOfANewStream(t *testing.T) {
	t.Parallel()
	js := jetStream(t, connect(t, startServer(t, "").URL))
	kit.Must(t, fleet.Create(t.Context(), js, cluster, fleet.Limits{}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: cluster, Disconnected: func(err error, _ time.Duration) { t.Error(err) }}) {
		t.Errorf("%+v, %v: an event of nobody", ev, err)
	}
}

// A watch since a time gets the events of that time and later, and then Synced, also if there are none, and if its first
// connection breaks before it gets any.
func TestWatchSince(t *testing.T) {
	t.Parallel()
	s, agents := startAgents(t, 4)
	c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
	c.converges()
	since := time.Now()
	time.Sleep(10 * time.Millisecond)
	before := len(agents[0].node.Published())
	agents[0].steps(10)
	c.converges()
	for at, want := range map[time.Time]int{since: len(agents[0].node.Published()) - before, time.Now(): 0} {
		got, path := 0, newRelay(t, s.URL)
		sprung := path.holdAt("CONSUMER.CREATE")
		go func() {
			<-sprung
			path.cut()
			path.release()
		}()
		for ev, err := range fleet.Watch(t.Context(), jetStream(t, connect(t, path.url)), fleet.WatchOptions{Cluster: cluster, Since: at, Filter: pleg.Filter{NetworkEvents: true}}) {
			kit.Must(t, err)
			if ev.Type == pleg.Synced {
				break
			}
			if got++; ev.Node != agents[0].name || ev.Replayed || int(ev.Seq) != before+got {
				t.Errorf("event %d since the time is %+v, want number %d of %s", got, ev, before+got, agents[0].name)
			}
		}
		if got != want {
			t.Errorf("%d events, want %d", got, want)
		}
	}
}

// A replay is complete although more states wait than the reader has asked for, because it is busy.
func TestReplayIsLargerThanTheBuffer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{pods: 30, first: 60, spoil: func(_ *pleg.Event, status *pleg.PodStatus) {
		for _, c := range status.Containers {
			c.Message = strings.Repeat("x", 400<<10/len(status.Containers))
		}
	}})
	js := jetStream(t, connect(t, s.URL))
	var stream jetstream.Stream
	until(t, func() (err error) { // the agent has published its pods, and its own message
		stream, err = js.Stream(t.Context(), fleet.StreamName(cluster))
		if err == nil && int(stream.CachedInfo().State.NumSubjects) <= len(a.node.Truth()) {
			err = errors.New("not every pod is published")
		}
		return err
	})
	replay := newOracle(true)
	for ev, err := range fleet.Watch(t.Context(), js, fleet.WatchOptions{Cluster: cluster, Replay: true, Filter: pleg.Filter{NetworkEvents: true}}) {
		kit.Must(t, err)
		if replay.streams[a.name] == nil { // the first event
			until(t, func() error { return sentAll(t, stream) })
		}
		if replay.Add(ev); replay.Synced {
			break
		}
	}
	kit.Must(t, replay.Has(a.name, a.node.Truth()))
}

// sentAll returns an error unless the server has sent all that the newest consumer has asked for.
func sentAll(t *testing.T, stream jetstream.Stream) error {
	consumers := stream.ListConsumers(t.Context())
	var newest *jetstream.ConsumerInfo
	for info := range consumers.Info() {
		if newest == nil || info.Created.After(newest.Created) {
			newest = info
		}
	}
	if newest == nil || newest.Delivered.Consumer == 0 || newest.NumWaiting > 0 && newest.NumPending > 0 {
		return fmt.Errorf("the newest consumer is %+v: %w", newest, consumers.Err())
	}
	return nil
}
