package fleet_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each option of a publisher acts: a row gives it a value that no other publisher of the server has.
func TestPublisherOptionsAct(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	conn := connect(t, s.URL)
	js := jetStream(t, conn)
	var log kit.Log
	registry := prometheus.NewPedanticRegistry()
	has := func(subject string) error {
		stream, err := js.Stream(t.Context(), streams[0])
		if err == nil {
			_, err = stream.GetLastMsgForSubject(t.Context(), subject)
		}
		return err
	}
	type row struct {
		set func(*fleet.PublisherOptions)
		// acts returns an error until it has seen the option act.
		acts func(p *fleet.Publisher, source *simNode) error
	}
	rows := map[string]row{
		"Conn": {func(*fleet.PublisherOptions) {}, func(*fleet.Publisher, *simNode) error { return has("pleg.v2.test_example.Conn.=") }}, // there is no publisher without these two
		"Source": {func(*fleet.PublisherOptions) {}, func(_ *fleet.Publisher, source *simNode) (err error) {
			for uid := range source.Truth() {
				err = cmp.Or(err, has("pleg.v2.test_example.Source."+string(uid)))
			}
			return err
		}},
		"Domain": {func(o *fleet.PublisherOptions) { o.Domain = "none" }, func(p *fleet.Publisher, _ *simNode) error {
			if err := p.Status().Err; !errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
				return fmt.Errorf("it publishes where is no such domain: %w", err)
			}
			return nil
		}},
		"Cluster": {func(o *fleet.PublisherOptions) { o.Cluster = "c7" }, func(*fleet.Publisher, *simNode) error {
			_, err := js.Stream(t.Context(), "pleg-v2-c7")
			return err
		}},
		"Node": {func(o *fleet.PublisherOptions) { o.Node = "n7" }, func(*fleet.Publisher, *simNode) error { return has("pleg.v2.test_example.n7.=") }},
		"Health": {func(o *fleet.PublisherOptions) {
			o.Health = func(context.Context) (pleg.Status, error) { return pleg.Status{}, errors.New("ill of late") }
		}, func(*fleet.Publisher, *simNode) error {
			states, err := fleet.OpenStates(t.Context(), js, cluster, "") // an error until the first row has made the stream
			if err != nil {
				return err
			}
			nodes, err := states.Nodes(t.Context())
			if err == nil && !slices.ContainsFunc(nodes, func(n fleet.Node) bool { return n.Verdict != nil && strings.Contains(n.Verdict.Text, "ill of late") }) {
				err = fmt.Errorf("the nodes are %+v", nodes)
			}
			return err
		}},
		"Limits": {func(o *fleet.PublisherOptions) {
			o.Cluster, o.Limits = "c8", fleet.Limits{MaxAge: 9 * time.Hour, MaxBytes: 7 << 20}
		}, func(*fleet.Publisher, *simNode) error {
			stream, err := js.Stream(t.Context(), "pleg-v2-c8")
			if err != nil {
				return err
			}
			if c := stream.CachedInfo().Config; c.MaxAge != 9*time.Hour || c.MaxBytes != 7<<20 {
				t.Errorf("the stream has %+v", c)
			}
			return nil
		}},
		"Logger": {func(o *fleet.PublisherOptions) { o.Cluster, o.Logger = "c9", log.Logger() }, func(*fleet.Publisher, *simNode) error {
			if !strings.Contains(log.String(), "publishing again") {
				if strings.Contains(log.String(), "fewer than 3 servers") && !strings.Contains(log.String(), "cannot publish") {
					_ = js.DeleteStream(t.Context(), "pleg-v2-c9") // the publisher begins again
				}
				return fmt.Errorf("the log is %q", log.String())
			}
			log.RequireLines(t, 1, "fewer than 3 servers")
			return nil
		}},
		"Registerer": {func(o *fleet.PublisherOptions) { o.Registerer = registry }, func(*fleet.Publisher, *simNode) error {
			if n := kit.Metric(t, registry, "pleg_fleet_published_events_total"); n == 0 {
				return errors.New("it counts no events")
			}
			return nil
		}},
	}
	kit.RequireRows(t, fleet.PublisherOptions{}, rows)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			source := newNode(t, "of-"+strings.ToLower(name), agentOptions{})
			o := fleet.PublisherOptions{Conn: conn, Source: source, Cluster: cluster, Node: name, Logger: slog.New(slog.DiscardHandler)}
			row.set(&o)
			p, err := fleet.NewPublisher(o)
			kit.Must(t, err)
			kit.Run(t, p.Run)
			until(t, func() error {
				source.Step()
				return row.acts(p, source)
			})
		})
	}
}

// Each option of a watch acts, with two nodes in one cluster and one node in another.
func TestWatchOptionsAct(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	conn := connect(t, s.URL)
	js := jetStream(t, conn)
	a, b := startAgent(t, s.URL, "node-a", agentOptions{first: 9}), startAgent(t, s.URL, "node-b", agentOptions{first: 9})
	other := newNode(t, "node-c", agentOptions{})
	p, err := fleet.NewPublisher(fleet.PublisherOptions{Conn: conn, Source: other, Cluster: "other", Node: "node-c"})
	kit.Must(t, err)
	kit.Run(t, p.Run)
	other.Step()
	all := watch(t, s.URL, fleet.WatchOptions{Replay: true}, a, b)
	all.converges()
	a.steps(3)
	all.converges()
	middle := all.newest()
	time.Sleep(10 * time.Millisecond) // messages of one moment are not told apart
	since := time.Now()
	a.steps(5)
	all.converges()
	events, _, _ := all.got()
	after := events[1+slices.IndexFunc(events, func(ev fleet.Event) bool { return ev.At == middle }):]
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "copy", Mirror: &jetstream.StreamSource{Name: streams[0], FilterSubject: allSubjects(b)}})
	kit.Must(t, err)
	until(t, func() error { // a watch that begins before everything is copied gets a Synced too early
		info, err := mirror.Info(t.Context())
		if err == nil && (info.State.Msgs == 0 || info.Mirror == nil || info.Mirror.Lag > 0) {
			err = fmt.Errorf("the mirror has %+v", info.State)
		}
		return err
	})
	var said sync.Map
	// only returns whether events came, all of this kind, up to a Synced.
	only := func(got []fleet.Event, is func(fleet.Event) bool) error {
		n := len(got)
		if n < 2 || got[n-1].Type != pleg.Synced {
			return fmt.Errorf("%d events without a Synced", n)
		}
		if i := slices.IndexFunc(got[:n-1], func(ev fleet.Event) bool { return !is(ev) }); i >= 0 {
			t.Errorf("got %+v", got[i])
		}
		return nil
	}
	from := func(node string) func([]fleet.Event) error {
		return func(got []fleet.Event) error { return only(got, func(ev fleet.Event) bool { return ev.Node == node }) }
	}
	hasAfter := func(got []fleet.Event) error {
		same := func(x, y fleet.Event) bool { return x.At == y.At }
		if n := len(got); n != len(after)+1 || !slices.EqualFunc(got[:n-1], after, same) {
			return fmt.Errorf("got %v, want %v and a Synced", got, after)
		}
		return nil
	}
	type row struct {
		o fleet.WatchOptions
		// acts returns an error until the events, or the texts in said, show that the option acts.
		acts func([]fleet.Event) error
	}
	rows := map[string]row{
		"Cluster": {fleet.WatchOptions{Cluster: "other", Replay: true}, from("node-c")},
		"Nodes":   {fleet.WatchOptions{Nodes: []string{"node-b"}, Replay: true}, from("node-b")},
		"Stream":  {fleet.WatchOptions{Stream: "copy", Replay: true}, from("node-b")},
		"Replay": {fleet.WatchOptions{Replay: true}, func(got []fleet.Event) error {
			return only(got, func(ev fleet.Event) bool { return ev.Replayed })
		}},
		"After": {fleet.WatchOptions{After: &middle, Filter: pleg.Filter{NetworkEvents: true}}, hasAfter},
		"Since": {fleet.WatchOptions{Since: since, Filter: pleg.Filter{NetworkEvents: true}}, hasAfter},
		"Bookmarks": {fleet.WatchOptions{Bookmarks: true}, func(got []fleet.Event) error {
			if len(got) == 0 || got[0].Type != pleg.Bookmark {
				return fmt.Errorf("got %+v, want a Bookmark", got)
			}
			return nil
		}},
		"Filter": {fleet.WatchOptions{Replay: true, Filter: pleg.Filter{Selector: "app in (shop-app)", OmitSandboxes: true}}, func(got []fleet.Event) error {
			return only(got, func(ev fleet.Event) bool { return ev.PodNamespace == "shop" && !ev.Sandbox })
		}},
		"Disconnected": {fleet.WatchOptions{Cluster: "nobody", Disconnected: func(err error, in time.Duration) {
			said.Store("Disconnected", fmt.Sprint(err, in))
		}}, func([]fleet.Event) error {
			if text, _ := said.Load("Disconnected"); text == nil || !strings.Contains(text.(string), "nothing has been published") {
				return fmt.Errorf("it was called with %v", text)
			}
			return nil
		}},
		"Unreadable": {fleet.WatchOptions{Unreadable: func(err error) { said.Store("Unreadable", err.Error()) }}, func([]fleet.Event) error {
			_, err := js.Publish(t.Context(), "pleg.v2.test_example.node-z.uid", []byte("garbage"))
			if text, _ := said.Load("Unreadable"); err == nil && text == nil {
				err = errors.New("it was not called")
			}
			return err
		}},
	}
	kit.RequireRows(t, fleet.WatchOptions{}, rows)
	for _, name := range slices.Sorted(maps.Keys(rows)) { // the row that publishes garbage is the last
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []fleet.Event
			row := rows[name]
			row.o.Cluster = cmp.Or(row.o.Cluster, cluster)
			kit.Run(t, func(ctx context.Context) error {
				for ev, err := range fleet.Watch(ctx, js, row.o) {
					if err != nil {
						return err
					}
					mu.Lock()
					got = append(got, ev)
					mu.Unlock()
				}
				return nil
			})
			until(t, func() error {
				mu.Lock()
				defer mu.Unlock()
				return row.acts(got)
			})
		})
	}
}
