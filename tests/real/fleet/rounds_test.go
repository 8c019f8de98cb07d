package fleet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/fleet/natsd"
)

var (
	firstSeed = flag.Uint64("first-seed", 1, "the first `SEED` of TestRounds")
	seeds     = flag.Uint64("seeds", 3, "the `NUMBER` of seeds of TestRounds")
	rounds    = flag.Int("rounds", 1, "the `NUMBER` of rounds of each seed of TestRounds")
)

// Faults drawn at random, on three to six nodes and one server, or three: then each watch has the state of all nodes,
// no event twice, and a Gap for missing events.
func TestRounds(t *testing.T) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := newRound(t, seed)
			for range *rounds {
				r.play()
			}
		})
	}
}

type round struct {
	t       *testing.T
	random  *rand.Rand
	servers []*natsd.Server
	store   string // of a single server
	url     string
	js      jetstream.JetStream
	relays  []*relay
	agents  []*agent
	watches []*consumer // the first one is never resumed
	wait    sync.WaitGroup
}

func newRound(t *testing.T, seed uint64) *round {
	t.Helper()
	r := &round{t: t, random: rand.New(rand.NewPCG(seed, 0))}
	limits := fleet.Limits{}
	if r.random.IntN(2) == 0 {
		dir := t.TempDir()
		r.servers, r.store = []*natsd.Server{natsd.New(t, dir, "")}, filepath.Join(dir, "jetstream", "$G", "streams")
		runServer(t, r.servers[0])
	} else {
		r.servers, limits.Replicas = startCluster(t), 3
	}
	r.url = urlOf(r.servers...)
	r.js = jetStream(t, connect(t, r.url))
	for i := range 3 + r.random.IntN(4) {
		path := newRelay(t, r.any().URL)
		r.relays = append(r.relays, path)
		r.agents = append(r.agents, startAgent(t, path.url, fmt.Sprintf("node-%d", i), agentOptions{seed: seed, first: 20, limits: limits}))
	}
	t.Cleanup(r.wait.Wait)
	for range 2 {
		r.join()
	}
	return r
}

func (r *round) any() *natsd.Server { return r.servers[r.random.IntN(len(r.servers))] }

// some returns a time that is drawn at random.
func (r *round) some(most time.Duration) time.Duration {
	return time.Duration(r.random.Int64N(int64(most)))
}

// join starts a watch at a server.
func (r *round) join() {
	r.watches = append(r.watches, watch(r.t, r.any().URL, fleet.WatchOptions{Replay: true}, r.agents...))
}

// play makes faults while all nodes change, and then requires that all is right.
func (r *round) play() {
	faults := slices.Sorted(maps.Keys(roundFaults))
	stop := churn(r.t, r.agents, 5*time.Millisecond+r.some(40*time.Millisecond))
	r.failServer()
	for range 2 + r.random.IntN(3) {
		time.Sleep(r.some(500 * time.Millisecond))
		name, i := faults[r.random.IntN(len(faults))], r.random.IntN(len(r.agents))
		fmt.Fprintln(r.t.Output(), time.Now().Format("15:04:05.000"), name, r.agents[i].name)
		roundFaults[name](r, r.agents[i], r.relays[i])
	}
	time.Sleep(r.some(time.Second))
	stop()
	r.wait.Wait()
	limited := false // a server has lost the newest limit
	r.onStream("read its limit", func(_ context.Context, stream jetstream.Stream) error {
		limited = stream.CachedInfo().Config.MaxBytes > 0
		return nil
	})
	if limited {
		r.empty()
	}
	fmt.Fprintln(r.t.Output(), time.Now().Format("15:04:05.000"), "all is repaired")
	r.join()
	for i, c := range r.watches {
		fmt.Fprintln(r.t.Output(), time.Now().Format("15:04:05.000"), "watch", i)
		c.converges()
	}
	r.retry("the states", r.states)
}

// failServer kills or stops a server for a time, or none. A single server may lose its newest messages.
func (r *round) failServer() {
	s, before, during := r.any(), r.some(time.Second), r.some(5*time.Second)
	whats := []string{"no server fails", "server killed", "server stopped", "server loses messages", "quorum lost"}
	what, saved := whats[r.random.IntN(len(whats))], r.t.TempDir()
	other := r.any()
	r.wait.Go(func() {
		time.Sleep(before)
		fmt.Fprintln(r.t.Output(), time.Now().Format("15:04:05.000"), what, s.URL, during)
		var err error
		switch {
		case what == "server killed":
			s.Kill()
			time.Sleep(during)
			err = s.Start(context.Background())
		case what == "server stopped":
			err = s.Pause()
			time.Sleep(during)
			err = errors.Join(err, s.Continue())
		case what == "quorum lost" && other != s:
			err = s.Pause()
			other.Kill()
			time.Sleep(during)
			err = errors.Join(err, s.Continue(), other.Start(context.Background()))
		case what == "server loses messages" && r.store != "":
			s.Kill()
			err = errors.Join(setStreams(saved, r.store), s.Start(context.Background()))
			time.Sleep(during)
			s.Kill()
			err = errors.Join(err, setStreams(r.store, saved), s.Start(context.Background()))
		}
		if err != nil {
			r.t.Error(err)
		}
	})
}

// retry calls do until a server does it.
func (r *round) retry(what string, do func(ctx context.Context) error) {
	r.t.Helper()
	until(r.t, func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		defer cancel()
		if err := do(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// states returns an error unless the states have all pods of all nodes, and no others.
func (r *round) states(ctx context.Context) error {
	states, err := fleet.OpenStates(ctx, r.js, cluster, "")
	if err != nil {
		return err
	}
	want, got := make(map[string]bool), make(map[string]bool)
	for _, a := range r.agents {
		for uid := range a.node.Truth() {
			want[a.name+"/"+string(uid)] = true
		}
	}
	for pod, err := range states.Pods(ctx, nil, nil) {
		if err != nil {
			return err
		}
		if got[pod.Node+"/"+string(pod.UID)] = true; pod.Silent {
			return fmt.Errorf("%s is silent: %+v", pod.Node, pod.Finding)
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the states have the pods %v, want %v", got, want)
	}
	return nil
}

// onStream calls do with the stream until it works.
func (r *round) onStream(what string, do func(context.Context, jetstream.Stream) error) {
	r.t.Helper()
	r.retry(what, func(ctx context.Context) error {
		stream, err := r.js.Stream(ctx, streams[0])
		if err != nil {
			return err
		}
		return do(ctx, stream)
	})
}

// setMaxBytes limits the stream to its present size, or removes the limit.
func (r *round) setMaxBytes(full bool) {
	r.t.Helper()
	r.onStream("limit", func(ctx context.Context, stream jetstream.Stream) error {
		config := stream.CachedInfo().Config
		if config.MaxBytes = -1; full {
			config.MaxBytes = int64(stream.CachedInfo().State.Bytes)
		}
		_, err := r.js.UpdateStream(ctx, config)
		return err
	})
}

// empty removes the limit of the stream, and restarts the agents.
func (r *round) empty() {
	r.t.Helper()
	r.setMaxBytes(false)
	r.onStream("read its limit", func(_ context.Context, stream jetstream.Stream) error {
		if most := stream.CachedInfo().Config.MaxBytes; most > 0 {
			return fmt.Errorf("it is %d", most)
		}
		return nil
	})
	for _, a := range r.agents { // otherwise each tries again only after a minute
		a.restart()
	}
}

func allSubjects(a *agent) string { return "pleg.v2.test_example." + a.name + ".>" }

// roundFaults happen to an agent, whose connection is through the relay, or to the watches.
var roundFaults = map[string]func(r *round, a *agent, path *relay){
	"agent killed": func(_ *round, a *agent, path *relay) {
		path.strand()
		a.restart()
	},
	"agent restarted": func(_ *round, a *agent, _ *relay) { a.restart() },
	"agent stopped": func(r *round, _ *agent, path *relay) {
		path.hold()
		time.Sleep(r.some(3 * time.Second))
		path.release()
	},
	"agents of one name": func(r *round, a *agent, _ *relay) {
		other := newNode(r.t, a.name, agentOptions{seed: r.random.Uint64()})
		a.mu.Lock()
		a.lives[other.Epoch()] = other
		a.mu.Unlock()
		_, stop := publish(r.t, fleet.PublisherOptions{Conn: connect(r.t, r.url), Source: other, Node: a.name})
		for range 20 {
			other.Step()
			time.Sleep(r.some(100 * time.Millisecond))
		}
		stop()
	},
	"clock set": func(r *round, a *agent, _ *relay) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.node.SetClock(r.some(2*time.Hour) - time.Hour)
	},
	"slow path": func(r *round, _ *agent, path *relay) {
		path.delay.Store(int64(r.some(300 * time.Millisecond)))
		time.Sleep(r.some(2 * time.Second))
		path.delay.Store(0)
	},
	"connection cut": func(_ *round, a *agent, path *relay) {
		a.steps(20)
		path.cut()
	},
	"events lost under way": func(_ *round, a *agent, path *relay) { a.lose(path) },
	"stream full": func(r *round, _ *agent, _ *relay) {
		r.setMaxBytes(true)
		time.Sleep(time.Second)
		r.empty()
	},
	"stream deleted": func(r *round, _ *agent, _ *relay) {
		r.retry("delete", func(ctx context.Context) error {
			err := r.js.DeleteStream(ctx, streams[0])
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			return err
		})
	},
	"leases deleted": func(r *round, _ *agent, _ *relay) {
		r.retry("delete", func(ctx context.Context) error {
			err := r.js.DeleteKeyValue(ctx, fleet.AgentBucket)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			return err
		})
	},
	"stream cut back": func(r *round, _ *agent, _ *relay) {
		keep := uint64(1 + r.random.IntN(100))
		r.onStream("purge", func(ctx context.Context, stream jetstream.Stream) error {
			return stream.Purge(ctx, jetstream.WithPurgeKeep(keep))
		})
	},
	"node purged": func(r *round, a *agent, _ *relay) {
		r.onStream("purge", func(ctx context.Context, stream jetstream.Stream) error {
			return stream.Purge(ctx, jetstream.WithPurgeSubject(allSubjects(a)))
		})
	},
	"newest message removed": func(r *round, a *agent, _ *relay) {
		r.onStream("remove", func(ctx context.Context, stream jetstream.Stream) error {
			m, err := stream.GetLastMsgForSubject(ctx, allSubjects(a))
			if err != nil {
				return err
			}
			return stream.DeleteMsg(ctx, m.Sequence)
		})
	},
	"garbage": func(r *round, a *agent, _ *relay) {
		subject := "pleg.v2.test_example." + a.name + ".uid"
		if uids := slices.Sorted(maps.Keys(a.node.Truth())); len(uids) > 0 && r.random.IntN(2) == 0 {
			subject = strings.Replace(allSubjects(a), ">", string(uids[0]), 1)
		}
		r.retry("publish", func(ctx context.Context) error {
			_, err := r.js.Publish(ctx, subject, []byte("garbage"))
			return err
		})
	},
	"node forgotten": func(r *round, a *agent, _ *relay) {
		a.stop()
		r.retry("forget", func(ctx context.Context) error {
			states, err := fleet.OpenStates(ctx, r.js, cluster, "")
			if err != nil {
				return err
			}
			if err = states.Forget(ctx, a.name); err != nil && (strings.Contains(err.Error(), "has not published") || strings.Contains(err.Error(), "an agent publishes")) {
				return nil // it is purged, or its agent could not report its end
			}
			return err
		})
		a.publish(agentOptions{})
	},
	"watch joins": func(r *round, _ *agent, _ *relay) { r.join() },
	"watch resumed": func(r *round, _ *agent, _ *relay) {
		i := 1 + r.random.IntN(len(r.watches)-1)
		c := r.watches[i]
		c.cancel()
		<-c.done
		had, _, _ := c.got()
		for had = had[:len(had)-min(len(had), r.random.IntN(50))]; len(had) > 0 && had[len(had)-1].At == ""; {
			had = had[:len(had)-1]
		}
		if len(had) == 0 {
			r.watches[i] = watch(r.t, r.any().URL, fleet.WatchOptions{Replay: true}, r.agents...)
			return
		}
		time.Sleep(r.some(time.Second))
		fmt.Fprintln(r.t.Output(), "resumes watch", i, "after", len(had), "events, at", had[len(had)-1].At)
		r.watches[i] = watchFrom(r.t, r.any().URL, fleet.WatchOptions{After: &had[len(had)-1].At}, had, r.agents...)
	},
	"leader steps down": func(r *round, _ *agent, _ *relay) {
		if len(r.servers) > 1 {
			_, err := r.js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+streams[0], nil, 5*time.Second)
			if err != nil {
				fmt.Fprintln(r.t.Output(), "step down:", err)
			}
		}
	},
}
