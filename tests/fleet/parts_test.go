package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/fleet/natsd"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const parts = 3

// partOf is written as docs/fleet.md says.
func partOf(node string) int {
	h := fnv.New32a()
	h.Write([]byte(node))
	return int(h.Sum32() % parts)
}

// nodeOf returns the name of a node in a part.
func nodeOf(number int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("node-%d", i); partOf(name) == number {
			return name
		}
	}
}

// inPart returns what a part calls a stream or bucket.
func inPart(name string, number int) string {
	if number == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, number)
}

// startParts starts six agents, two in each part of three.
func startParts(t *testing.T, url string, o agentOptions) (agents []*agent) {
	t.Helper()
	var in [parts]int
	for i := 0; len(agents) < 2*parts; i++ {
		name := fmt.Sprintf("node-%d", i)
		if in[partOf(name)]++; in[partOf(name)] > 2 {
			continue
		}
		o.first = o.pods * 3 / 2
		agents = append(agents, startAgent(t, url, name, o))
	}
	return agents
}

// inOnePartOrMore runs a test with a server and six agents: in one part, and in three.
func inOnePartOrMore(t *testing.T, pods int, test func(t *testing.T, s *natsd.Server, number int, agents []*agent)) {
	t.Parallel()
	for _, number := range []int{1, parts} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "")
			test(t, s, number, startParts(t, s.URL, agentOptions{pods: pods, limits: fleet.Limits{Parts: number}}))
		})
	}
}

// Watches that begin in the middle of changes are synced with everything, although the states are
// rewritten while they are read: a key that is rewritten comes later, or twice, so that a count of
// messages proves nothing. One watch has the order, the Gaps and the positions of all parts, also when
// the server is killed and when agents begin again.
func TestSyncedIsCompleteInChurn(t *testing.T) {
	inOnePartOrMore(t, 60, func(t *testing.T, s *natsd.Server, number int, agents []*agent) {
		first := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
		first.converges()
		js := jetStream(t, connect(t, s.URL))
		for part := range number {
			stream, err := js.Stream(t.Context(), inPart(fleet.EventStream, part))
			kit.Must(t, err)
			if got, want := stream.CachedInfo().State.NumSubjects, uint64(len(agents)/number); got != want {
				t.Errorf("part %d has the events of %d nodes, want %d", part, got, want)
			}
		}
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
	})
}

// A watch that resumes where another one was, at any event, also in the middle of a message, gets what
// came later in each part, nothing twice, and then Synced. One of a single node does so without the
// other parts.
func TestWatchResumes(t *testing.T) {
	inOnePartOrMore(t, 4, func(t *testing.T, s *natsd.Server, number int, agents []*agent) {
		c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
		c.converges()
		first := c.count() - 1
		live := watch(t, s.URL, fleet.WatchOptions{Bookmarks: true}) // it has a position before any event
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
		for i := first; i < len(events); i += 3*number - 2 {
			at := events[i].At
			if at == "" {
				t.Fatalf("event %d after %d has no position", i, first)
			}
			resumes(at, named(events[i+1:]))
			resumes(at, named(events[i+1:], agents[2].name), agents[2].name)
		}
		resumes(mark.At, named(events[first+1:]))
	})
}

// A position of another stream, of the future, or of messages that a part no longer has, costs a Gap
// about all nodes, and the state of all.
func TestBadPositionIsAGap(t *testing.T) {
	inOnePartOrMore(t, 4, func(t *testing.T, s *natsd.Server, number int, agents []*agent) {
		c := watch(t, s.URL, fleet.WatchOptions{Replay: true}, agents...)
		c.converges()
		past := c.newest()
		for _, a := range agents {
			a.steps(5)
		}
		c.converges()
		future := regexp.MustCompile(`:[^,]*`).ReplaceAllString(string(past), ":1000000")
		stream, err := jetStream(t, connect(t, s.URL)).Stream(t.Context(), inPart(fleet.EventStream, number/2))
		kit.Must(t, err)
		kit.Must(t, stream.Purge(t.Context()))
		for _, at := range []fleet.Position{past, fleet.Position(future), "another:7", ""} {
			resumed := watch(t, s.URL, fleet.WatchOptions{After: &at}, agents...)
			resumed.converges()
			events, gaps, _ := resumed.got()
			if first := slices.IndexFunc(events, func(ev fleet.Event) bool { return ev.Type == pleg.Gap }); gaps != 1 || events[first].Node != "" || number == 1 && first > 0 {
				t.Errorf("after %q: %d Gaps, want one of all nodes", at, gaps)
			}
		}
	})
}

// A part whose only server is gone holds up its own nodes alone. A watch that begins then gets the
// others, but is not synced before the part is back.
func TestLostPartHoldsUpItsNodesAlone(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	url := urlOf(servers[:2]...)
	js := jetStream(t, connect(t, url))
	for number := range parts {
		createPartOn(t, js, number, fmt.Sprintf("s%d", number))
	}
	agents := startParts(t, url, agentOptions{pods: 12, limits: fleet.Limits{Parts: parts}})
	c := watch(t, url, fleet.WatchOptions{Replay: true}, agents...)
	c.converges()
	gaps := c.gapsSoFar()
	servers[2].Kill()
	late := watch(t, url, fleet.WatchOptions{Replay: true}, agents...)
	for _, a := range agents {
		a.steps(20)
	}
	othersHave := func(c *consumer) {
		c.eventually(func() error {
			var all []error
			for _, a := range agents {
				if partOf(a.name) != 2 {
					all = append(all, c.Has(a.name, a.node.Truth()))
				}
			}
			return errors.Join(all...)
		})
	}
	othersHave(c)
	othersHave(late)
	late.mu.Lock()
	if late.Synced {
		t.Error("synced without a part")
	}
	late.mu.Unlock()
	showsOthers(t, url, agents)
	kit.Must(t, servers[2].Start(t.Context()))
	c.converges()
	late.converges()
	c.hasGaps(gaps)
}

// showsOthers checks that the program shows the nodes of parts 0 and 1, and says that part 2 is away:
// once, while it waits.
func showsOthers(t *testing.T, url string, agents []*agent) {
	t.Helper()
	events := command(t, "events", "--replay", "--fleet", url, "--cluster", cluster)
	var rows, said kit.Log
	events.Stdout, events.Stderr = &rows, &said
	kit.Must(t, events.Start())
	for _, view := range []string{"pods", "doctor"} {
		var missing bytes.Buffer
		c := command(t, view, "--fleet", url, "--cluster", cluster)
		c.Stderr = &missing
		out, err := c.Output()
		if failed := new(exec.ExitError); !errors.As(err, &failed) || !strings.Contains(missing.String(), "part 2: ") {
			t.Errorf("%s: %v, want an error that names part 2\n%s", view, err, &missing)
		}
		shown := view == "pods" && strings.Contains(string(out), nodeOf(0)) && strings.Contains(string(out), nodeOf(1))
		if !shown && !strings.Contains(string(out), "4 of 4 nodes") {
			t.Errorf("%s shows, want the nodes of the other parts:\n%s", view, out)
		}
	}
	until(t, func() error {
		if !strings.Contains(said.String(), "disconnected") {
			return errors.New("nothing says that a part is away")
		}
		return nil
	})
	had := rows.String()
	for _, a := range agents {
		a.steps(5)
	}
	until(t, func() error {
		if rows.String() == had {
			return errors.New("no events of the other parts come")
		}
		return nil
	})
	_ = events.Process.Signal(os.Interrupt)
	if err := events.Wait(); err != nil || !strings.Contains(rows.String(), nodeOf(0)) || strings.Count(said.String(), "connected") != 1 {
		t.Errorf("events: %v, want those of the other parts and that part 2 is away, once:\n%s\n%s", err, &rows, &said)
	}
}

// createPartOn creates a part that only the server with this tag keeps.
func createPartOn(t *testing.T, js jetstream.JetStream, number int, tag string) {
	t.Helper()
	place := &jetstream.Placement{Tags: []string{tag}}
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: inPart(fleet.EventStream, number), Subjects: []string{fmt.Sprintf("pleg.v1.ev.*.%d.*", number)}, Placement: place,
		Metadata: map[string]string{"pleg-parts": fmt.Sprint(parts)},
	})
	if err == nil {
		_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: inPart(fleet.StateBucket, number), LimitMarkerTTL: time.Minute, Placement: place})
	}
	if err == nil {
		_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: inPart(fleet.AgentBucket, number), TTL: fleet.LeaseTTL, Placement: place})
	}
	kit.Must(t, err)
}

// The first to create the streams sets the number of parts and what they keep. What exists is not changed,
// and a watch that knows another number ends: it would miss nodes.
func TestNumberOfParts(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	js := jetStream(t, connect(t, s.URL))
	create := func(parts int) error {
		return fleet.Create(t.Context(), js, fleet.Limits{Parts: parts, MaxAge: time.Hour, MaxBytes: 1 << 20, Replicas: 1})
	}
	for range 2 {
		kit.Must(t, create(parts))
	}
	stream, err := js.Stream(t.Context(), fleet.EventStream)
	kit.Must(t, err)
	if c := stream.CachedInfo().Config; c.MaxAge != time.Hour || c.MaxBytes != 1<<20 || c.Retention != jetstream.LimitsPolicy {
		t.Errorf("the stream is %+v", c)
	}
	if err := create(1); err == nil || !strings.Contains(err.Error(), "exists with") || !strings.Contains(err.Error(), "stop the agents") {
		t.Errorf("another number of parts: %v, want an error that says what to do", err)
	}
	a := startAgent(t, s.URL, "node-a", agentOptions{}) // its limits have one part
	a.steps(5)
	ended := make(chan error, 3)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	synced := make(chan bool, 3)
	for _, nodes := range [][]string{nil, {nodeOf(0)}, {nodeOf(2)}} { // part 2 has no successor
		go func() {
			var last error
			for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: cluster, Replay: true, Nodes: nodes}) {
				if ev.Type == pleg.Synced && ev.Node == "" {
					synced <- true
				}
				last = err
			}
			ended <- last
		}()
	}
	for range cap(synced) {
		<-synced
	}
	a.stop()
	kit.Must(t, js.DeleteStream(t.Context(), fleet.EventStream))
	if err := create(1); err == nil || !strings.Contains(err.Error(), "exists with") {
		t.Errorf("one part while others of three exist: %v, want an error", err)
	}
	for number := range parts {
		for _, name := range []string{fleet.EventStream, "KV_" + fleet.StateBucket, "KV_" + fleet.AgentBucket} {
			kit.Must(t, js.DeleteStream(t.Context(), inPart(name, number)))
		}
	}
	kit.Must(t, create(2))
	for range cap(ended) {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "the number of parts has changed") {
			t.Errorf("a watch ends with %v", err)
		}
	}
	a.publish(agentOptions{})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
}

// An agent that nobody has stopped publishes to its new part once the number has changed.
func TestAgentOutlivesParts(t *testing.T) {
	t.Parallel()
	for _, numbers := range [][2]int{{1, 3}, {3, 5}} {
		before, now := numbers[0], numbers[1]
		t.Run(fmt.Sprintf("%d to %d", before, now), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "")
			js := jetStream(t, connect(t, s.URL))
			kit.Must(t, fleet.Create(t.Context(), js, fleet.Limits{Parts: before}))
			a := startAgent(t, s.URL, nodeOf(1), agentOptions{first: 10, limits: fleet.Limits{Parts: now}})
			old := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a)
			old.converges()
			old.cancel()
			<-old.done
			for name := range js.StreamNames(t.Context()).Name() {
				kit.Must(t, js.DeleteStream(t.Context(), name))
			}
			kit.Must(t, fleet.Create(t.Context(), js, fleet.Limits{Parts: now}))
			a.steps(20)
			watch(t, s.URL, fleet.WatchOptions{Replay: true, Nodes: []string{a.name}}, a).converges()
		})
	}
}
