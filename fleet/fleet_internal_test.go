package fleet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// agentOn runs the pipeline and the agent of the node "n" on a server until stop is called.
func agentOn(t *testing.T, s memoryServer, runtime *plegtest.Runtime, log *kit.Log) (stop func()) {
	t.Helper()
	pipe := kit.New(t, pipeline.Options{Runtime: runtime, History: 16})
	p, err := NewPublisher(PublisherOptions{Conn: s.conn, Source: pipe, Cluster: "c", Node: "n", Health: pipe.Status, Logger: log.Logger()})
	kit.Must(t, err)
	p.js = s
	pipe.Start(t)
	end := kit.Run(t, p.Run)
	return func() {
		if families, err := pipe.Metrics.Gather(); !strings.Contains(fmt.Sprint(families), `"fleet"`) {
			t.Errorf("no subscriber has the name fleet: %v, %v", families, err)
		}
		kit.Must(t, end())
		_ = pipe.Stop()
	}
}

// events returns the events of a watch that lasts so long, in short, and when the first Synced of all came.
func (s memoryServer) events(t *testing.T, o WatchOptions, lasts time.Duration) (all []Event, synced time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	o.Cluster, synced = "c", -1
	if o.Disconnected == nil {
		o.Disconnected = func(err error, _ time.Duration) { t.Errorf("a watch is disconnected: %v", err) }
	}
	began := time.Now()
	for ev, err := range Watch(ctx, s, o) {
		kit.Must(t, err)
		if ev.ObservedAt.IsZero() || time.Since(ev.ObservedAt) > time.Hour {
			t.Errorf("%s of %s was observed at %v", ev.Type, ev.Node, ev.ObservedAt)
		}
		if all = append(all, ev); synced < 0 && ev.Type == pleg.Synced && ev.Node == "" {
			synced = time.Since(began)
		}
	}
	return all, synced
}

// inShort returns what events say: their types, with the container or the reason and whether they are replayed.
func inShort(events []Event) string {
	var all []string
	for _, ev := range events {
		text := string(ev.Type)
		switch {
		case ev.ContainerID != "":
			text = fmt.Sprintf("%s of %s/%s on %s", text, ev.PodNamespace, ev.ContainerID, ev.Node)
		case ev.Reason != "" || ev.Node != "":
			text += strings.TrimRight(" "+ev.Node+" "+ev.Reason, " ")
		}
		if ev.Replayed {
			text += " already"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// wantsRest fails the test unless a watch that resumes after any of the events gets those after it.
func (s memoryServer) wantsRest(t *testing.T, events []Event) {
	t.Helper()
	for i, ev := range events {
		if ev.At == "" {
			continue
		}
		rest, _ := s.events(t, WatchOptions{After: &ev.At}, time.Second)
		wants(t, fmt.Sprintf("after event %d", i), strings.TrimSuffix(inShort(rest), "Synced"), strings.TrimSuffix(inShort(events[i+1:]), "Synced"))
	}
}

// podsOf returns the pods of a cluster in short.
func (s memoryServer) podsOf(t *testing.T) string {
	t.Helper()
	states, err := OpenStates(t.Context(), s, "c", "")
	kit.Must(t, err)
	var all []string
	for pod, err := range states.Pods(t.Context(), nil, nil) {
		kit.Must(t, err)
		text := fmt.Sprintf("%s/%s %v", pod.Namespace, pod.Name, pod.Labels)
		if pod.Status != nil && len(pod.Status.Containers) > 0 {
			text += " " + pod.Status.Containers[0].State.String()
		}
		if pod.Silent || pod.Finding != nil || pod.Partial != "" || time.Since(pod.CurrentAsOf) > 2*renewPeriod {
			text += fmt.Sprintf(" (silent %v, %+v, %s, %v old)", pod.Silent, pod.Finding, pod.Partial, time.Since(pod.CurrentAsOf))
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// wants fails the test unless a text is as wanted.
func wants(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

// What happens on a node arrives at the watches of its cluster, and its state in States: at once, after an outage of the
// server, after a restart of the agent, and when the node leaves.
func TestNodeAndItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runtime, log := newMemoryServer(t), plegtest.New(), new(kit.Log)
		runtime.Set("shop/a", "a=running /s=running")
		runtime.Set("jobs/b", "b=running /t=running")
		began := time.Now()
		stop := agentOn(t, s, runtime, log)
		time.Sleep(10 * time.Second)
		first, _ := s.events(t, WatchOptions{Since: began, Filter: pleg.Filter{Namespaces: []string{"jobs"}}}, time.Second)
		wants(t, "at first", inShort(first), "Gap n NodeNew, ContainerStarted of jobs/b on n already, ContainerStarted of jobs/t on n already, Synced n, Synced")
		wants(t, "the pods", s.podsOf(t), "jobs/name-jobs/b map[pod:b] running, shop/name-shop/a map[pod:a] running")

		from, since := s.position(t), time.Now()
		runtime.Set("shop/a", "a=exited /s=running")
		time.Sleep(2 * time.Second)
		s.stream.with(func() { s.stream.full = errors.New("no disk") })
		runtime.Set("shop/a", "a=exited c=running /s=running")
		time.Sleep(2 * time.Second)
		runtime.Set("jobs/b", "")
		time.Sleep(5 * time.Second)
		states, err := OpenStates(t.Context(), s, "c", "")
		kit.Must(t, err)
		if nodes, err := states.Nodes(t.Context()); err != nil || len(nodes) != 1 || !strings.Contains(nodes[0].Verdict.Text, "cannot publish") || !strings.Contains(nodes[0].Verdict.Text, "no disk") {
			t.Errorf("the nodes are %+v, %v; want one that cannot publish", nodes, err)
		}
		s.stream.with(func() { s.stream.full = nil })
		time.Sleep(10 * time.Second)
		log.RequireLines(t, 1, `level=WARN msg="cannot publish events" stage=fleet node=n err=`)
		log.RequireLines(t, 1, `level=INFO msg="publishing again" stage=fleet node=n`)
		log.RequireLines(t, 0, "in part")
		live, synced := s.events(t, WatchOptions{After: &from}, time.Second)
		wants(t, "since then", inShort(live), "ContainerDied of shop/a on n, ContainerStarted of shop/c on n, ContainerDied of jobs/b on n, ContainerRemoved of jobs/b on n, ContainerDied of jobs/t on n, ContainerRemoved of jobs/t on n, Synced")
		s.wantsRest(t, live)
		for name, tt := range map[string]struct {
			o    WatchOptions
			want string
		}{
			"from now on":      {WatchOptions{}, ""},
			"with marks":       {WatchOptions{Bookmarks: true}, "Bookmark"},
			"since now":        {WatchOptions{Since: time.Now()}, "Synced"},
			"since a time":     {WatchOptions{Since: since}, inShort(live)},
			"of another node":  {WatchOptions{After: &from, Nodes: []string{"m"}}, "Synced"},
			"of two nodes":     {WatchOptions{After: &from, Nodes: []string{"m", "n"}}, inShort(live)},
			"of two others":    {WatchOptions{After: &from, Nodes: []string{"m", "o"}}, "Synced"},
			"of a namespace":   {WatchOptions{After: &from, Filter: pleg.Filter{Namespaces: []string{"shop"}}}, "ContainerDied of shop/a on n, ContainerStarted of shop/c on n, Synced"},
			"of a label":       {WatchOptions{After: &from, Filter: pleg.Filter{Selector: "pod=a"}}, "ContainerDied of shop/a on n, ContainerStarted of shop/c on n, Synced"},
			"of no such label": {WatchOptions{After: &from, Filter: pleg.Filter{Selector: "pod=b,pod!=b"}}, "Synced"},
		} {
			got, synced := s.events(t, tt.o, time.Second)
			if wants(t, "since then, "+name, inShort(got), tt.want); synced > 0 {
				t.Errorf("its Synced comes after %v", synced)
			}
		}
		at, _ := parsePlace(string(live[0].At))
		if lag := time.Unix(0, at.stored).Sub(live[0].ObservedAt); lag > 50*time.Millisecond || synced != 0 {
			t.Errorf("an event is stored after %v, and Synced comes after %v, although all is there", lag, synced)
		}
		wants(t, "the pods", s.podsOf(t), "shop/name-shop/a map[pod:a] exited")
		for name, tt := range map[string]struct {
			filter pleg.Filter
			want   string
		}{
			"all":               {pleg.Filter{}, "ContainerStarted of shop/s on n already, ContainerDied of shop/a on n already, ContainerStarted of shop/c on n already, Synced"},
			"a label":           {pleg.Filter{Selector: "pod=a", OmitSandboxes: true}, "ContainerDied of shop/a on n already, ContainerStarted of shop/c on n already, Synced"},
			"another label":     {pleg.Filter{Selector: "pod=b"}, "Synced"},
			"another namespace": {pleg.Filter{Namespaces: []string{"jobs"}}, "Synced"},
		} {
			replay, synced := s.events(t, WatchOptions{Replay: true, Filter: tt.filter}, time.Second)
			if wants(t, "a replay of "+name, inShort(replay), tt.want); synced != 0 {
				t.Errorf("its Synced comes after %v", synced)
			}
		}

		runtime.Set("jobs/b", "b=running")
		time.Sleep(2 * time.Second)
		wants(t, "the pods", s.podsOf(t), "jobs/name-jobs/b map[] running, shop/name-shop/a map[pod:a] exited")
		from = s.position(t)
		s.stream.with(func() { s.stream.full = errors.New("no disk") })
		runtime.Set("jobs/x", "x=running")
		time.Sleep(2 * time.Second) // until the agent waits between two attempts
		runtime.Set("jobs/b", "")
		for n := range 20 {
			runtime.Set(pleg.PodUID(fmt.Sprint("jobs/x", n)), fmt.Sprintf("x%d=running", n))
		}
		time.Sleep(2 * time.Second)
		for n := range 20 {
			runtime.Remove(pleg.PodUID(fmt.Sprint("jobs/x", n)))
		}
		runtime.Set("jobs/x", "")
		time.Sleep(10 * time.Minute)
		s.stream.with(func() { s.stream.full = nil })
		time.Sleep(6 * time.Second) // it tries every 5 s
		wants(t, "the pods", s.podsOf(t), "shop/name-shop/a map[pod:a] exited")
		if lost, _ := s.events(t, WatchOptions{After: &from}, time.Second); !strings.Contains(inShort(lost), "Gap n HistoryTooShort") {
			t.Errorf("after more changes than the history has: %s, want a Gap", inShort(lost))
		}

		stop()
		runtime.Set("shop/a", "")
		runtime.Set("shop/d", "d=running /u=running")
		from = s.position(t)
		stop = agentOn(t, s, runtime, log)
		time.Sleep(10 * time.Second)
		runtime.Set("shop/d", "d=exited /u=running")
		time.Sleep(2 * time.Second)
		again, _ := s.events(t, WatchOptions{After: &from}, time.Second)
		wants(t, "after a restart", inShort(again), "Gap n OtherEpoch, ContainerStarted of shop/d on n already, ContainerStarted of shop/u on n already, Synced n, ContainerDied of shop/d on n, Synced")
		s.wantsRest(t, again)
		wants(t, "the pods", s.podsOf(t), "shop/name-shop/d map[pod:d] exited")
		replay, _ := s.events(t, WatchOptions{Replay: true}, time.Second)
		wants(t, "a replay", inShort(replay), "ContainerStarted of shop/u on n already, ContainerDied of shop/d on n already, Synced")

		if err := states.Forget(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "an agent publishes as this node") {
			t.Errorf("a node with an agent is forgotten: %v", err)
		}
		from = s.position(t)
		stop()
		if nodes, err := states.Nodes(t.Context()); err != nil || len(nodes) != 1 || !nodes[0].Silent || !strings.Contains(nodes[0].Verdict.Text, "was stopped") {
			t.Errorf("the nodes are %+v, %v; want one that was stopped", nodes, err)
		}
		kit.Must(t, states.Forget(t.Context(), "n"))
		if nodes, err := states.Nodes(t.Context()); err != nil || len(nodes) > 0 {
			t.Errorf("the nodes are %+v, %v; want none", nodes, err)
		}
		wants(t, "the pods", s.podsOf(t), "")
		replay, _ = s.events(t, WatchOptions{Replay: true}, time.Second)
		wants(t, "a replay", inShort(replay), "Synced")
		left, _ := s.events(t, WatchOptions{After: &from}, time.Second)
		wants(t, "once it is forgotten", inShort(left), "Gap n NodeGone, Synced n, Synced")
		s.wantsRest(t, left)
		before := from
		from = s.position(t)
		runtime.Set("shop/d", "d=running /u=running")
		stop = agentOn(t, s, runtime, log)
		time.Sleep(10 * time.Second)
		const back = "Gap n NodeNew, ContainerStarted of shop/d on n already, ContainerStarted of shop/u on n already, Synced n, Synced"
		for position, want := range map[Position]string{from: back, before: "Gap n NodeGone, Synced n, " + back} {
			got, _ := s.events(t, WatchOptions{After: &position}, time.Second)
			wants(t, "once it is back", inShort(got), want)
		}
		wants(t, "its pods", s.podsOf(t), "shop/name-shop/d map[pod:d] running")
		stop()
		time.AfterFunc(time.Second, func() { _ = s.stream.Purge(t.Context(), jetstream.WithPurgeSubject("pleg.v2.c.n.>")) })
		purged, _ := s.events(t, WatchOptions{Replay: true}, time.Minute)
		wants(t, "its messages are purged", inShort(purged), "ContainerStarted of shop/d on n already, ContainerStarted of shop/u on n already, Synced, Gap n NodeGone, Synced n")
		s.stream.with(func() { s.stream.info.Config.Name = "mirror" })
		_, err = OpenStates(t.Context(), s, "c", "mirror")
		kit.Must(t, err)
		replay, _ = s.events(t, WatchOptions{Stream: "mirror", Replay: true}, time.Second)
		wants(t, "a replay of a mirror", inShort(replay), "Synced")
	})
}

// The position of an empty stream is its beginning. The end of its connection ends a watch.
func TestWatchOfAnEmptyStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemoryServer(t)
		s.stream.level = 2
		missing := ""
		_, _ = s.events(t, WatchOptions{Disconnected: func(err error, _ time.Duration) { missing = err.Error() }}, time.Second)
		wants(t, "without a stream", missing, "nothing has been published for this cluster yet, or only by agents of version 1: update those")
		kit.Must(t, Create(t.Context(), s, "c", Limits{Replicas: 3}))
		future, behind := (place{time.Now().UnixNano(), 5, 1}).position(), 0
		for lasts, want := range map[time.Duration]string{10 * time.Second: "", 25 * time.Second: "Gap  HistoryTooShort, Synced"} {
			got, _ := s.events(t, WatchOptions{After: &future, Disconnected: func(err error, _ time.Duration) { behind++; wants(t, "behind", err.Error(), errBehind.Error()) }}, lasts)
			wants(t, "after a position that the servers may have lost", inShort(got), want)
		}
		for _, err := range Watch(t.Context(), s, WatchOptions{Cluster: "c", Replay: true}) {
			kit.Must(t, err)
			break // the loop can be left
		}
		all, _ := s.events(t, WatchOptions{Replay: true}, time.Second)
		if wants(t, "an empty stream", inShort(all), "Synced"); all[0].At != s.position(t) {
			t.Errorf("the position is %s, want %s", all[0].At, s.position(t))
		}
		time.AfterFunc(time.Minute, s.conn.Close)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got error
		for _, err := range Watch(ctx, s, WatchOptions{Cluster: "c"}) {
			got = err
		}
		if got == nil || !strings.HasPrefix(got.Error(), "watch fleet: ") || ctx.Err() != nil {
			t.Errorf("the watch ends with %v, want an error soon after its connection", got)
		}
	})
}

// A stream and the bucket get the limits of Create, or of the first agent. Create again checks them.
func TestStreamsOfACluster(t *testing.T) {
	limits := Limits{MaxAge: time.Hour, MaxBytes: 1 << 20, MaxAgentBytes: 1 << 10, Replicas: 3}
	for name, tt := range map[string]struct {
		given Limits
		want  [4]int64 // the ages, and the bytes of the stream and of the bucket
	}{
		"none": {Limits{}, [4]int64{int64(24 * time.Hour), int64(24 * time.Hour), -1, 0}},
		"some": {limits, [4]int64{int64(time.Hour), int64(24 * time.Hour), 1 << 20, 1 << 10}},
	} {
		s := newMemoryServer(t)
		for _, of := range []*memoryStream{s.stream, s.bucket} {
			of.full = errors.New("no room")
			if err := Create(t.Context(), s, "c", tt.given); !errors.Is(err, of.full) || err.Error() != map[bool]string{true: "create fleet: stream pleg-v2-c: no room", false: "create fleet: bucket pleg-agents: no room"}[of == s.stream] {
				t.Errorf("Create() = %v without room", err)
			}
			of.full, of.made = nil, 0
		}
		for range 2 {
			kit.Must(t, Create(t.Context(), s, "c", tt.given))
		}
		if s.stream.made != 1 || s.bucket.made != 1 { // an agent may lack the permission
			t.Errorf("the stream is created %d times, and the bucket %d", s.stream.made, s.bucket.made)
		}
		stream, bucket := s.stream.info.Config, s.bucket.info.Config
		if got := [4]int64{int64(stream.MaxAge), int64(bucket.MaxAge), stream.MaxBytes, bucket.MaxBytes}; got != tt.want || stream.Replicas != max(1, tt.given.Replicas) || bucket.Replicas != stream.Replicas {
			t.Errorf("with %s: %v, %d and %d replicas; want %v", name, got, stream.Replicas, bucket.Replicas, tt.want)
		}
		if !slices.Equal(stream.Subjects, []string{"pleg.v2.c.>"}) || stream.Discard != jetstream.DiscardNew || stream.Compression != jetstream.S2Compression || !stream.AllowAtomicPublish || stream.Name != "pleg-v2-c" || stream.Description != "Pod lifecycle events and states of pleg-pipeline" || bucket.Description != "Agents of pleg-pipeline" {
			t.Errorf("the stream is %+v", stream)
		}
		other, has := Limits{MaxAge: 2 * time.Hour, Replicas: 1}, tt.given
		kit.Must(t, has.complete())
		has.MaxAgentBytes = 0 // the bucket may have been created for another cluster
		want := fmt.Sprintf("create fleet: stream pleg-v2-c exists with %+v, want %+v: the nats command changes limits", has, other)
		if err := Create(t.Context(), s, "c", other); fmt.Sprint(err) != want {
			t.Errorf("Create() = %v with other limits, want %s", err, want)
		}
		s.stream.looks, s.bucket.looks = []error{jetstream.ErrStreamNotFound, jetstream.ErrStreamNotFound}, []error{jetstream.ErrBucketNotFound}
		kit.Must(t, Create(t.Context(), s, "c", tt.given)) // another agent was faster
		s.stream.info.Config.AllowAtomicPublish = false    // of an older version
		if kit.Must(t, Create(t.Context(), s, "c", tt.given)); !s.stream.info.Config.AllowAtomicPublish {
			t.Error("an older stream still allows no batches")
		}
	}
}

// A stream that cannot be used is an error that says why.
func TestUnusableStreams(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*memoryStream)
		says   string
	}{
		"as it was created":   {func(*memoryStream) {}, "<nil>"},
		"without a server":    {func(s *memoryStream) { s.conn.Close() }, "open states: not connected to "},
		"a mirror":            {func(s *memoryStream) { s.info.Config.Subjects, s.info.Config.Mirror = nil, new(jetstream.StreamSource) }, "<nil>"},
		"none":                {func(s *memoryStream) { s.info.Config.Name = "" }, "open states: nothing has been published for this cluster yet, or only by agents of version 1: update those"},
		"a server that fails": {func(s *memoryStream) { s.looks = []error{errors.New("broken")} }, "open states: stream pleg-v2-c: broken"},
		"JetStream is off":    {func(s *memoryStream) { s.level = 0 }, "open states: ask for JetStream: " + jetstream.ErrJetStreamNotEnabled.Error()},
		"an old server":       {func(s *memoryStream) { s.level = 1 }, "open states: nats-server 2.11.9 is too old: want 2.12 or newer"},
		"other subjects":      {func(s *memoryStream) { s.info.Config.Subjects = []string{"x"} }, `open states: stream pleg-v2-c: it has the subjects ["x"]: want pleg.v2.c.>`},
		"other retention":     {func(s *memoryStream) { s.info.Config.Retention = jetstream.InterestPolicy }, "open states: stream pleg-v2-c: it has the retention Interest: want limits"},
		"no batches":          {func(s *memoryStream) { s.info.Config.AllowAtomicPublish = false }, `open states: stream pleg-v2-c: it does not allow atomic batches: "pleg-pipeline fleet create" allows them`},
	} {
		s := newMemoryServer(t)
		kit.Must(t, Create(t.Context(), s, "c", Limits{}))
		tt.change(s.stream)
		if _, err := OpenStates(t.Context(), s, "c", ""); fmt.Sprint(err) != tt.says && !strings.HasSuffix(tt.says, " to ") || !strings.HasPrefix(fmt.Sprint(err), tt.says) {
			t.Errorf("%s: %v, want %s", name, err, tt.says)
		} else if off := s.stream.level == 0; off != errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
			t.Errorf("%s: %v wraps the cause: %v, want %v", name, err, !off, off)
		}
	}
	if _, err := OpenStates(t.Context(), fakeJetStream{}, "c", ""); fmt.Sprint(err) != "open states: not connected to : no server answers" {
		t.Errorf("without a connection: %v", err)
	}
	for name, want := range map[string]string{"": "cluster must not be empty", strings.Repeat("c", 81): "cluster has 81 bytes, the limit is 80"} {
		if _, err := OpenStates(t.Context(), nil, name, ""); fmt.Sprint(err) != want {
			t.Errorf("of the cluster %q: %v", name, err)
		}
		if err := Create(t.Context(), nil, name, Limits{}); errors.Unwrap(err) == nil || err.Error() != "create fleet: "+want {
			t.Errorf("Create() = %v of the cluster %q", err, name)
		}
	}
	if err := Create(t.Context(), nil, "c", Limits{MaxAge: -1}); fmt.Sprint(err) != "create fleet: Options.Limits.MaxAge must be positive, got -1ns" {
		t.Errorf("Create() = %v with bad limits", err)
	}
	s := newMemoryServer(t)
	p, _ := newTestPublisher(t, s.stream)
	p.js, s.bucket.err = s, errors.New("broken")
	created, renewed := Create(t.Context(), s, "c", Limits{}), p.renew(t.Context(), health{})
	if got, want := fmt.Sprint(created, ", ", renewed), "create fleet: bucket pleg-agents: broken, bucket pleg-agents: broken"; got != want {
		t.Errorf("with a bucket that cannot be used: %s, want %s", got, want)
	}
}

// The error of a call says what it lacks itself: where the server is, and which permission is missing.
func TestExplain(t *testing.T) {
	conn, err := Connect("nats://127.0.0.1:1,nats://127.0.0.1:2", nil)
	kit.Must(t, err)
	defer conn.Close()
	if text := explain(conn, nats.ErrReconnectBufExceeded).Error(); !regexp.MustCompile(`^not connected to nats://127\.0\.0\.1:[12], nats://127\.0\.0\.1:[12]: `).MatchString(text) || strings.Contains(text, "buffer") {
		t.Errorf("without a connection: %s", text)
	}
	conn = connectTo(t, 100)
	if text := explain(conn, context.DeadlineExceeded).Error(); text != context.DeadlineExceeded.Error() {
		t.Errorf("without a missing permission: %s", text)
	}
	kit.Must(t, conn.Publish("forbidden", nil))
	for conn.LastError() == nil {
		kit.Must(t, conn.Flush())
	}
	missing := conn.LastError().Error()
	for err, says := range map[error]string{context.DeadlineExceeded: missing + ": ", nats.ErrTimeout: missing + ": ", errors.New("other"): ""} {
		explained := explain(conn, err)
		if explained.Error() != says+err.Error() || !strings.Contains(missing, "Permissions Violation") || !errors.Is(explained, err) || errors.Is(explained, nats.ErrPermissionViolation) != (says != "") {
			t.Errorf("%v is explained as %v", err, explained)
		}
	}
	conn.Close()
	if text := explain(conn, errors.New("other")).Error(); !strings.HasPrefix(text, "not connected to ") || !strings.HasSuffix(text, ": "+missing) {
		t.Errorf("without the connection: %s", text)
	}
}

// What uses a connection learns that it was made again.
func TestConnectionMadeAgain(t *testing.T) {
	s := newMemoryServer(t)
	ctx, stop := untilReconnected(t.Context(), s.conn)
	defer stop()
	if kit.Must(t, s.conn.Flush()); ctx.Err() != nil {
		t.Error("it has not been lost yet")
	}
	kit.Must(t, s.conn.ForceReconnect())
	if <-ctx.Done(); context.Cause(ctx).Error() != "the connection was lost" {
		t.Errorf("it ends with %v", context.Cause(ctx))
	}
	ctx, stop = untilReconnected(t.Context(), s.conn)
	if stop(); ctx.Err() == nil {
		t.Error("it goes on once it is stopped")
	}
	var log kit.Log
	conn, err := Connect("nats://me:secret@server:7", log.Logger(), nats.InProcessServer(fakeServer(100)))
	kit.Must(t, err)
	defer conn.Close()
	conn.Opts.ReconnectedCB(conn)
	log.RequireLines(t, 1, `level=INFO msg="connected to NATS" server=nats://me:xxxxx@server:7`)
}

// position returns the position of the end of the stream.
func (s memoryServer) position(t *testing.T) Position {
	t.Helper()
	info, err := s.stream.Info(t.Context())
	kit.Must(t, err)
	return (place{info.Created.UnixNano(), info.State.LastSeq, info.State.LastTime.UnixNano()}).position()
}
