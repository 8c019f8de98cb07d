package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

// startFull returns the address of a server, or of three, whose stream is full after the first of two agents, once the doctor says
// that the second cannot publish.
func startFull(t *testing.T, replicas int) (url string, first, second *agent) {
	t.Helper()
	if replicas > 1 {
		url = urlOf(startCluster(t)...)
	} else {
		url = startServer(t, "").URL
	}
	kit.Must(t, fleet.Create(t.Context(), jetStream(t, connect(t, url)), cluster, fleet.Limits{MaxBytes: 12_000, Replicas: replicas}))
	first = startAgent(t, url, "node-a", agentOptions{pods: 2, first: 1})
	watch(t, url, fleet.WatchOptions{Replay: true}, first).converges()
	second = startAgent(t, url, "node-b", agentOptions{pods: 12, first: 30})
	until(t, func() error {
		out, err := command(t, "doctor", "--fleet", url, "--cluster", cluster).CombinedOutput()
		if failed := new(exec.ExitError); !errors.As(err, &failed) || !strings.Contains(string(out), "the node cannot publish since ") || !strings.Contains(string(out), "maximum bytes exceeded") {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	return url, first, second
}

// A full stream is reported, and each pod in it is marked.
func TestFullStreamIsSeen(t *testing.T) {
	t.Parallel()
	url, _, second := startFull(t, 1)
	if err := openStates(t, url).Forget(t.Context(), second.name); err == nil || !strings.Contains(err.Error(), "an agent publishes as this node") {
		t.Errorf("forget a node whose agent cannot publish: %v, want an error", err)
	}
	pods := 0
	for pod, err := range openStates(t, url).Pods(t.Context(), []string{second.name}, nil) {
		kit.Must(t, err)
		if pods++; !pod.Silent || pod.Finding == nil || pod.Finding.What != "cannot publish" {
			t.Errorf("%s/%s is not marked: %+v", pod.Namespace, pod.Name, pod.Finding)
		}
	}
	if all := len(second.node.Truth()); pods == 0 || pods >= all {
		t.Errorf("%d of %d pods are there, want some", pods, all)
	}
}

// Once a full stream accepts messages again, the present state comes, with one Gap. With replicas, no part of it comes
// earlier.
func TestFullStreamHasRoomAgain(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			url, a, b := startFull(t, replicas)
			c := watch(t, url, fleet.WatchOptions{Replay: true}, a, b)
			c.eventually(c.isSynced)
			if err := c.Has(b.name, nil); err != nil && replicas > 1 {
				t.Errorf("while it is full: %v", err)
			}
			b.steps(30)
			configure(t, url, func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
			c.within(80 * time.Second) // a full server is asked again after a minute
			if got := c.gapsSoFar(); got > 1 {
				t.Errorf("%d gaps, want the first one of the node", got)
			}
			until(t, func() error {
				out, err := command(t, "doctor", "--fleet", url, "--cluster", cluster).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, out)
				}
				return err
			})
		})
	}
}

// Three servers whose stream is full while events come: the agents say so, and the events of that time arrive once
// there is room, without a Gap.
func TestStreamGetsFull(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	url := urlOf(servers...)
	a := startAgent(t, url, "node-a", agentOptions{first: 20, limits: fleet.Limits{Replicas: 3}})
	c := watch(t, url, fleet.WatchOptions{Replay: true}, a)
	c.converges()
	gaps := c.gapsSoFar()
	used := stateOf(t, streamAt(t, url)).Bytes
	configure(t, url, func(c *jetstream.StreamConfig) { c.MaxBytes = int64(used) + 4000 })
	a.steps(50)
	states := openStates(t, url)
	until(t, func() error {
		nodes, err := states.Nodes(t.Context())
		if err == nil && (len(nodes) != 1 || !nodes[0].Silent || !strings.Contains(nodes[0].Verdict.Text, "maximum bytes exceeded")) {
			err = fmt.Errorf("the nodes are %+v", nodes)
		}
		return err
	})
	a.steps(50)
	configure(t, url, func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
	c.within(80 * time.Second)
	c.hasGaps(gaps)
}

// A stream that is nearly full is a warning, before it refuses messages.
func TestNearlyFullStreamIsAWarning(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	a := startAgent(t, s.URL, "node-a", agentOptions{first: 30, health: func(context.Context) (pleg.Status, error) {
		return pleg.Status{Healthy: true, Relist: pleg.RelistStatus{Success: time.Now()}}, nil
	}})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
	doctor := func() string {
		out, err := command(t, "doctor", "--fleet", s.URL, "--cluster", cluster).Output()
		if err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return string(out)
	}
	for full, want := range map[uint64]string{70: "OK: 1 of 1 nodes", 85: "WARNING: 1 of 1 nodes; the stream is 8"} {
		used := stateOf(t, streamAt(t, s.URL)).Bytes
		configure(t, s.URL, func(c *jetstream.StreamConfig) { c.MaxBytes = int64(100 * used / full) })
		if out := doctor(); !strings.Contains(out, want) {
			t.Errorf("a stream that is %d %% full: %s\nwant %s", full, out, want)
		}
	}
}

// A stream of an older version allows no batches. "fleet create" allows them.
func TestCreateAllowsBatches(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	js := jetStream(t, connect(t, s.URL))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: streams[0], Subjects: []string{"pleg.v2.test_example.>"}, MaxAge: fleet.DefaultMaxAge, Discard: jetstream.DiscardNew, Compression: jetstream.S2Compression,
	})
	kit.Must(t, err)
	a := startAgent(t, s.URL, "node-a", agentOptions{first: 3})
	if out, err := command(t, "fleet", "create", "--fleet", s.URL, "--cluster", cluster).CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a).converges()
}

// An agent that no longer renews its lease counts as silent within 15 s, from its last renewal on. An agent that ended
// normally was stopped; that is no problem.
func TestSilentAndStopped(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	r := newRelay(t, s.URL)
	a, b := startAgent(t, r.url, "node-a", agentOptions{first: 3}), startAgent(t, s.URL, "node-b", agentOptions{first: 3})
	watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b).converges()
	r.hold()
	b.stop()
	vanished := time.Now()
	states := openStates(t, s.URL)
	until(t, func() error {
		nodes, err := states.Nodes(t.Context())
		if err == nil && (len(nodes) != 2 || !nodes[0].Silent) {
			err = fmt.Errorf("the nodes are %+v", nodes)
		}
		return err
	})
	if took := time.Since(vanished); took > fleet.LeaseTTL+2*time.Second {
		t.Errorf("it is known after %v, want %v", took, fleet.LeaseTTL)
	}
	nodes, err := states.Nodes(t.Context())
	kit.Must(t, err)
	if v := nodes[0].Verdict; v.Severity != "problem" || vanished.Sub(v.Findings[0].Since).Abs() > 6*time.Second {
		t.Errorf("node-a: %+v, want a problem since %v", v, vanished)
	}
	if v := nodes[1].Verdict; v.Severity != "warning" || !strings.Contains(v.Text, "was stopped") {
		t.Errorf("node-b: %+v, want that it was stopped", v)
	}
}

// leave contains the ways in which a node leaves, by name.
var leave = map[string]func(t *testing.T, a *agent){
	"forgotten": func(t *testing.T, a *agent) {
		kit.Must(t, openStates(t, a.url).Forget(t.Context(), a.name))
	},
	"purged": func(t *testing.T, a *agent) {
		kit.Must(t, streamAt(t, a.url).Purge(t.Context(), jetstream.WithPurgeSubject("pleg.v2.test_example."+a.name+".>")))
	},
}

// If a node leaves, a Gap with that reason comes, and no pods after it. A watch that resumes gets the Gap too if the
// node was forgotten.
func TestNodeLeaves(t *testing.T) {
	t.Parallel()
	for name, leaves := range leave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startField(t, fieldOptions{})
			at := f.newest()
			f.a.stop()
			leaves(t, &agent{name: f.a.name, url: f.server.URL})
			watches := []*consumer{f.consumer}
			if name == "forgotten" {
				watches = append(watches, watch(t, f.server.URL, fleet.WatchOptions{After: &at}, f.b))
			}
			for _, c := range watches {
				c.eventually(func() error {
					i := slices.IndexFunc(c.events, func(ev fleet.Event) bool { return ev.Type == pleg.Gap && ev.Reason == fleet.NodeGone })
					if i < 0 || len(c.events) == i+1 {
						return errors.New("no Gap and Synced")
					}
					if synced := c.events[i+1]; synced.Type != pleg.Synced || synced.Node != f.a.name {
						t.Errorf("after the Gap comes %+v, want Synced", synced)
					}
					return nil
				})
			}
			nodes, err := openStates(t, f.server.URL).Nodes(t.Context())
			if err != nil || len(nodes) != 1 {
				t.Errorf("the nodes are %+v, %v, want one", nodes, err)
			}
		})
	}
}

// The newest message of a pod is removed, or overwritten by garbage: watches that come later are right within a minute. So
// they are if the pod is gone, and its older messages say that it exists.
func TestNewestMessageOfAPod(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, url, subject string){
		"removed": func(t *testing.T, url, subject string) {
			stream := streamAt(t, url)
			m, err := stream.GetLastMsgForSubject(t.Context(), subject)
			kit.Must(t, err)
			kit.Must(t, stream.DeleteMsg(t.Context(), m.Sequence))
		},
		"overwritten": func(t *testing.T, url, subject string) {
			_, err := jetStream(t, connect(t, url)).Publish(t.Context(), subject, []byte("garbage"))
			kit.Must(t, err)
		},
		"purged": func(t *testing.T, url, subject string) {
			kit.Must(t, streamAt(t, url).Purge(t.Context(), jetstream.WithPurgeSubject(subject)))
		},
	} {
		for _, gone := range []bool{false, true} {
			if gone && name == "purged" {
				continue // nothing wrong is left
			}
			t.Run(fmt.Sprintf("%s, gone: %v", name, gone), func(t *testing.T) {
				t.Parallel()
				f := startField(t, fieldOptions{})
				gaps, before := f.gapsSoFar(), f.a.node.Truth()
				if gone {
					f.a.node.RemoveOne()
					f.a.steps(2)
					f.converges()
				}
				now := f.a.node.Truth()
				for uid := range before {
					if _, there := now[uid]; there != gone {
						spoil(t, f.server.URL, "pleg.v2.test_example.node-a."+string(uid))
						break
					}
				}
				f.eventually(func() error {
					if f.Gaps == gaps {
						return errors.New("no Gap")
					}
					return nil
				})
				f.late()
			})
		}
	}
}

// A watch that resumes gets a Gap of the node if it passes a message that it cannot read.
func TestResumeWithGarbage(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	at := f.newest()
	f.a.steps(5)
	f.converges()
	f.a.stop() // the agent would replace the message
	_, err := jetStream(t, connect(t, f.server.URL)).Publish(t.Context(), "pleg.v2.test_example.node-a.uid", []byte("garbage"))
	kit.Must(t, err)
	c := watch(t, f.server.URL, fleet.WatchOptions{After: &at}, f.a)
	c.eventually(func() error {
		i := slices.IndexFunc(c.events, func(ev fleet.Event) bool { return ev.Type == pleg.Gap })
		if c.Gaps != 1 || c.events[i].Node != f.a.name {
			return fmt.Errorf("%d Gaps, and %+v", c.Gaps, c.events)
		}
		return c.Has(f.a.name, f.a.node.Truth())
	})
}

// A watch that resumes gets a Gap of the node, and its state, if a message after its position was removed. Events between the replay
// of the hole and the last message in the replay carry no position: a watch that resumed there would get something twice.
func TestResumeWithAHole(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	at, stream := f.newest(), streamAt(t, f.server.URL)
	removed := stateOf(t, stream).LastSeq + 1
	for range 3 {
		for _, a := range []*agent{f.a, f.b} {
			a.steps(2)
			f.converges()
		}
	}
	f.a.stop() // the agent would publish the removed message again
	own, err := stream.GetLastMsgForSubject(t.Context(), "pleg.v2.test_example.node-a.>")
	kit.Must(t, err)
	kit.Must(t, stream.DeleteMsg(t.Context(), removed))
	c := watch(t, f.server.URL, fleet.WatchOptions{After: &at}, f.a, f.b)
	c.eventually(func() error {
		if n := len(c.events); n == 0 || c.events[n-1].Type != pleg.Synced || c.events[n-1].Node != "" {
			return errors.New("no Synced")
		}
		return c.Has(f.a.name, f.a.node.Truth())
	})
	events, gaps, _ := c.got()
	if gaps != 1 || events[0].Node != f.a.name {
		t.Fatalf("%d Gaps, the first event is %+v, want a Gap of the node", gaps, events[0])
	}
	positions := 0
	for _, ev := range events {
		if ev.At == "" {
			continue
		}
		if positions++; messageOf(t, ev.At) < own.Sequence {
			t.Errorf("%v has the position %s, before message %d of the replay", ev.Event, ev.At, own.Sequence)
		}
	}
	if positions == 0 {
		t.Error("nothing has a position")
	}
}

// The position before the first message of the stream is still there; the one before that is not.
func TestFirstPosition(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.steps(10)
	f.converges()
	f.a.stop() // the agents would publish the removed messages again
	f.b.stop()
	events, _, _ := f.got()
	var there []fleet.Position
	for _, ev := range events {
		if ev.At != "" && (len(there) == 0 || messageOf(t, ev.At) > messageOf(t, there[len(there)-1])) {
			there = append(there, ev.At)
		}
	}
	i := len(there) / 2
	kit.Must(t, streamAt(t, f.server.URL).Purge(t.Context(), jetstream.WithPurgeSequence(messageOf(t, there[i])+1)))
	for _, tt := range []struct {
		at   fleet.Position
		gaps int
	}{{there[i], 0}, {there[i-1], 1}} {
		c := watch(t, f.server.URL, fleet.WatchOptions{After: &tt.at})
		c.eventually(c.isSynced)
		if got := c.gapsSoFar(); got != tt.gaps {
			t.Errorf("after %s: %d Gaps, want %d", tt.at, got, tt.gaps)
		}
	}
}

// messageOf returns the sequence number in a position.
func messageOf(t *testing.T, at fleet.Position) (message uint64) {
	t.Helper()
	_, after, _ := strings.Cut(string(at), ":")
	_, err := fmt.Sscanf(after, "%d:", &message)
	kit.Must(t, err)
	return message
}

// A watch works through a leaf node with a domain of its own, and on a mirror there. An agent publishes through it.
func TestLeafNodeAndMirror(t *testing.T) {
	t.Parallel()
	leaves := process.FreeAddress(t)
	hub := natsd.New(t, t.TempDir(), fmt.Sprintf("server_name: hub\nleafnodes { listen: %q }", leaves))
	hub.Domain = "hub"
	runServer(t, hub)
	leaf := natsd.New(t, t.TempDir(), fmt.Sprintf("server_name: leaf\nleafnodes { remotes: [{url: %q}] }", "nats://"+leaves))
	leaf.Domain = "leaf"
	runServer(t, leaf)
	conn := connect(t, leaf.URL)
	js, err := jetstream.NewWithDomain(conn, "hub")
	kit.Must(t, err)
	until(t, func() error { _, err := js.AccountInfo(t.Context()); return err })
	a := startAgent(t, hub.URL, "node-a", agentOptions{first: 10})
	node := newNode(t, "node-b", agentOptions{})
	publish(t, fleet.PublisherOptions{Conn: conn, Domain: "hub", Source: node, Node: "node-b"})
	node.Step()
	mirror := jetStream(t, conn)
	_, err = mirror.CreateStream(t.Context(), jetstream.StreamConfig{Name: "copy", Mirror: &jetstream.StreamSource{Name: streams[0], Domain: "hub"}})
	kit.Must(t, err)
	for name, of := range map[string]struct {
		js     jetstream.JetStream
		stream string
	}{"domain": {js, ""}, "mirror": {mirror, "copy"}} {
		replay := newOracle(true)
		until(t, func() error {
			for ev, err := range fleet.Watch(t.Context(), of.js, fleet.WatchOptions{Cluster: cluster, Stream: of.stream, Replay: true, Filter: pleg.Filter{NetworkEvents: true}}) {
				kit.Must(t, err)
				if replay.Add(ev); replay.Synced {
					break
				}
			}
			err := errors.Join(replay.Has("node-a", a.node.Truth()), replay.Has("node-b", node.Truth()))
			if err != nil {
				replay = newOracle(true)
				err = fmt.Errorf("%s: %w", name, err)
			}
			return err
		})
	}
	states, err := fleet.OpenStates(t.Context(), js, cluster, "")
	kit.Must(t, err)
	if nodes, err := states.Nodes(t.Context()); err != nil || len(nodes) != 2 || nodes[1].Silent {
		t.Errorf("the nodes are %+v, %v, want two with agents", nodes, err)
	}
	out, err := command(t, "pods", "--no-headers", "--fleet", leaf.URL, "--nats-domain", "hub", "--cluster", cluster).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "node-a") || !strings.Contains(string(out), "node-b") {
		t.Errorf("pods: %v\n%s", err, out)
	}
	a.stop()
	kit.Must(t, states.Forget(t.Context(), a.name))
	until(t, func() error { // the mirror still contains the pods of the node
		replay := newOracle(true)
		for ev, err := range fleet.Watch(t.Context(), mirror, fleet.WatchOptions{Cluster: cluster, Stream: "copy", Replay: true}) {
			kit.Must(t, err)
			if replay.Add(ev); replay.Synced {
				break
			}
		}
		return replay.Has(a.name, nil)
	})
}

// The account requires a size of each stream. A file contains the user and the password.
func TestAccountWithSizes(t *testing.T) {
	t.Parallel()
	s := startServer(t, "accounts { A: { users: [{user: a, password: x}], jetstream: {max_bytes_required: true, max_file: 200M} } }")
	context := filepath.Join(t.TempDir(), "context.json")
	kit.Must(t, os.WriteFile(context, []byte(`{"user": "a", "password": "x", "url": "nats://unused"}`), 0o600))
	place := []string{"--fleet", s.URL, "--cluster", "prod", "--nats-context", context}
	if out, err := command(t, append([]string{"fleet", "create", "--max-bytes", "50M"}, place...)...).CombinedOutput(); err != nil || !strings.Contains(string(out), "at most 52428800 bytes") {
		t.Errorf("%v\n%s", err, out)
	}
	conn := connect(t, s.URL, nats.UserInfo("a", "x"))
	info, err := jetStream(t, conn).Stream(t.Context(), "KV_"+fleet.AgentBucket)
	kit.Must(t, err)
	if config := info.CachedInfo().Config; config.MaxBytes != fleet.DefaultMaxAgentBytes || config.MaxAge != fleet.DefaultMaxAge { // agents that are gone leave it
		t.Errorf("the bucket has %d bytes for %v", config.MaxBytes, config.MaxAge)
	}
}
