package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A replay that a connection did not complete begins again, with a Gap: of all nodes, or of one within later events.
func TestReplayBeginsAgain(t *testing.T) {
	created := time.Unix(1000, 0)
	for name, at := range map[string]place{"all": {}, "one node": {stream: created.UnixNano()}} {
		w, got := newTestWatch(t)
		w.store = (&memoryStream{info: jetstream.StreamInfo{Created: created}}).on()
		w.o, w.at, w.broken, w.seen, w.owes, w.start, w.nodes["n"] = WatchOptions{Replay: true}, at, true, nil, false, 7, new(progress)
		config, err := w.begin(t.Context())
		if err != nil || config.DeliverPolicy != jetstream.DeliverLastPerSubjectPolicy || len(*got) != 1 || (*got)[0].Type != pleg.Gap {
			t.Errorf("%s: %v, policy %v after %+v, want a Gap and the states", name, err, config.DeliverPolicy, *got)
		}
		if w.at != (place{}) || w.start != 0 || w.seen == nil || !w.owes || !w.broken || len(w.nodes) > 0 {
			t.Errorf("%s: it begins after %+v, %d, with the nodes %v", name, w.at, w.start, w.nodes)
		}
	}
}

// What a watch of a stream with nine messages begins with, and whether a Synced follows the earlier ones.
func TestBegin(t *testing.T) {
	created, stored := time.Unix(1000, 0), time.Unix(2000, 0)
	end, none := (place{created.UnixNano(), 9, stored.UnixNano()}).position(), Position("")
	for name, tt := range map[string]struct {
		o      WatchOptions
		at     place // of an earlier connection
		policy jetstream.DeliverPolicy
		first  uint64
		says   []pleg.EventType
		synced bool
	}{
		"once it has begun":       {WatchOptions{Replay: true}, place{created.UnixNano(), 9, stored.UnixNano()}, jetstream.DeliverByStartSequencePolicy, 10, nil, false},
		"from now on":             {WatchOptions{}, place{}, jetstream.DeliverByStartSequencePolicy, 10, nil, false},
		"with marks":              {WatchOptions{Bookmarks: true}, place{}, jetstream.DeliverByStartSequencePolicy, 10, []pleg.EventType{pleg.Bookmark}, false},
		"with the states":         {WatchOptions{Replay: true, Bookmarks: true}, place{}, jetstream.DeliverLastPerSubjectPolicy, 0, nil, true},
		"since a time":            {WatchOptions{Since: stored, Bookmarks: true}, place{}, jetstream.DeliverByStartTimePolicy, 0, nil, true},
		"after a position":        {WatchOptions{After: &end, Bookmarks: true}, place{}, jetstream.DeliverByStartSequencePolicy, 10, nil, true},
		"after an empty position": {WatchOptions{After: &none}, place{}, jetstream.DeliverLastPerSubjectPolicy, 0, []pleg.EventType{pleg.Gap}, true},
	} {
		w, got := newTestWatch(t)
		w.o, w.at, w.subjects, w.seen, w.owes, w.broken = tt.o, tt.at, []string{"a", "b"}, nil, false, false
		stream := streamOf(jetstream.RawStreamMsg{Sequence: 9, Time: stored})
		stream.info.Created, w.store = created, stream.on()
		config, err := w.begin(t.Context())
		if start := map[bool]uint64{true: 9}[tt.first == 10 && tt.at == place{}]; !slices.Equal(config.FilterSubjects, w.subjects) || w.start != start {
			t.Errorf("%s: it begins after %d with the subjects %q, want %d and %q", name, w.start, config.FilterSubjects, start, w.subjects)
		}
		for _, ev := range *got {
			if ev.ObservedAt.IsZero() || ev.Type == pleg.Gap && ev.Reason != pleg.HistoryTooShort {
				t.Errorf("%s: got %+v", name, ev)
			}
		}
		if err != nil || config.DeliverPolicy != tt.policy || config.OptStartSeq != tt.first || (config.OptStartTime != nil) != (name == "since a time") || w.owes != tt.synced || !slices.Equal(typesOf(*got), tt.says) {
			t.Errorf("%s: %+v, %v, after %+v; a Synced: %v; want %+v", name, config, err, *got, w.owes, tt)
		}
		if len(*got) > 0 && (*got)[0].Type == pleg.Bookmark && (*got)[0].At != end {
			t.Errorf("the first mark has the position %s, want %s", (*got)[0].At, end)
		}
		w.at, w.yield = tt.at, func(Event, error) bool { return false }
		w.broken, w.seen = false, nil
		if _, err := w.begin(t.Context()); errors.Is(err, errStopped) != (len(tt.says) > 0) {
			t.Errorf("%s: %v after the loop has ended", name, err)
		}
	}
	w, _ := newTestWatch(t)
	stream := streamOf(jetstream.RawStreamMsg{Sequence: 9, Time: stored})
	w.store, w.known, stream.info.Config.Replicas = stream.on(), place{stream: stream.info.Created.UnixNano(), message: 10}, 3
	if _, err := w.begin(t.Context()); !errors.Is(err, errBehind) {
		t.Errorf("of servers that are behind: %v", err)
	}
	stream.mute, w.at, w.known, w.broken = errors.New("mute"), place{w.known.stream, 9, 1}, place{}, false
	if _, err := w.begin(t.Context()); !errors.Is(err, stream.mute) || err.Error() != "read message: not connected to : mute" {
		t.Errorf("of servers that do not send the message: %v", err)
	}
	stream.err = errors.New("broken")
	if _, err := w.begin(t.Context()); !errors.Is(err, stream.err) {
		t.Errorf("of servers that say nothing: %v", err)
	}
}

// The state of one node, which comes within the states of all, does not complete these.
func TestNodeWithinTheReplayOfAll(t *testing.T) {
	w, got := newTestWatch(t)
	w.store = new(memoryStream).on()
	kit.Must(t, w.replayNode(t.Context(), "n", &pleg.Event{Reason: pleg.HistoryTooShort}, place{message: 9}))
	if !w.broken || len(*got) != 1 || w.position(place{message: 9}) != "" {
		t.Errorf("got %+v, complete: %v; want the Gap alone", *got, !w.broken)
	}
}

// A message of somebody else makes nobody ask for a node again within the states of all, if nobody publishes for the node,
// or if its state is newer.
func TestGarbage(t *testing.T) {
	w, got := newTestWatch(t)
	stream, stored := new(memoryStream), time.Unix(2000, 0)
	started := pleg.Event{Epoch: "e", Seq: 4, Type: pleg.ContainerStarted, PodUID: "u", ContainerID: "x"}
	r := newRecord("u", "web", "shop")
	r.apply(&started)
	state, _ := r.encode(newMessage("", ofState, &started), 1<<20)
	stream.add(podSubject("c", "n", "u"), state)
	stream.add(nodeSubject("c", "n"), []byte(`{"data":{"seq":9,"pod":{"events":[{"type":"ContainerDied"}]}}}`)) // without an epoch
	w.store, w.end, w.known.message, w.withheld, w.o.Cluster = stream.on(), place{stream: 7}, 4, 2, "c"
	var passed []string
	_, unread := decode([]byte("garbage"))
	says := []string{"cannot read pleg.v2.c.n.v: " + unread.Error(), "cannot read pleg.v2.c.n.=: it has no epoch"}
	of := func(sequence uint64) error {
		return w.handle(t.Context(), &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "v"), Sequence: sequence, Time: stored, Data: []byte("garbage")})
	}
	garbage := func(sequence uint64, texts int) {
		t.Helper()
		passed = nil
		kit.Must(t, of(sequence))
		if want := (place{7, sequence, stored.UnixNano()}); w.at != want || w.known.message != max(4, sequence) || !slices.Equal(passed, says[:texts]) {
			t.Errorf("the watch is at %+v, want %+v, and knows %+v; it passes over %q, want %q", w.at, want, w.known, passed, says[:texts])
		}
	}
	garbage(2, 0)
	w.o.Unreadable = func(err error) {
		if passed = append(passed, err.Error()); errors.Unwrap(err) == nil {
			t.Errorf("%v wraps no cause", err)
		}
	}
	garbage(3, 1)
	w.seen, w.owes, w.broken = nil, false, false
	held := stream.held
	stream.held = nil
	garbage(4, 1)
	if len(*got) > 0 {
		t.Errorf("got %+v, want nothing", *got)
	}
	stream.held = held
	garbage(5, 2) // also the message of the node
	garbage(5, 1)
	if want := []pleg.EventType{pleg.Gap, pleg.ContainerStarted, pleg.Synced}; !slices.Equal(typesOf(*got), want) || (*got)[0].Node != "n" || (*got)[1].Node != "n" || (*got)[0].Reason != pleg.HistoryTooShort {
		t.Errorf("got %+v, want %v of the node", *got, want)
	} else if end := (*got)[2]; end.Epoch != "e" || end.Seq != 4 || end.Node != "n" || end.At != (place{7, 5, stored.UnixNano()}).position() || w.broken || w.withheld != 5 {
		t.Errorf("the state ends with %+v, complete: %v, without positions up to %d", end, !w.broken, w.withheld)
	}
	w.withheld = 9
	if garbage(6, 2); w.withheld != 9 {
		t.Errorf("events have a position from %d on, want 9", w.withheld)
	}
	for _, broken := range []*error{&stream.err, &stream.mute} {
		*broken, w.broken = errors.New("broken"), false
		if err := of(7); !errors.Is(err, *broken) || w.at.message != 6 || w.broken != (broken == &stream.err) {
			t.Errorf("%v, and the watch is at %d; want it before the message, which is read again", err, w.at.message)
		}
	}
}

// A watch continues after its last message, also once that message has expired, unless later ones have too, or the stream
// contains other messages.
func TestContinues(t *testing.T) {
	created, stored := time.Unix(1000, 0), time.Unix(2000, 0)
	of9 := place{created.UnixNano(), 9, stored.UnixNano()}
	for name, tt := range map[string]struct {
		at    place
		first uint64 // in the stream
		want  bool
		other *jetstream.RawStreamMsg // the only one, in place of that at the position
	}{
		"after a message":                  {place{created.UnixNano(), 9, stored.UnixNano()}, 1, true, nil},
		"after another one of that number": {place{created.UnixNano(), 9, 1}, 1, false, nil},
		"after another one, the first":     {place{created.UnixNano(), 9, 1}, 9, false, nil},
		"before the first message":         {place{created.UnixNano(), 9, 1}, 10, true, nil},
		"before one that has expired":      {place{created.UnixNano(), 8, 1}, 10, false, nil},
		"after the last message":           {place{created.UnixNano(), 20, stored.UnixNano()}, 1, true, nil},
		"behind the last message":          {place{created.UnixNano(), 21, stored.UnixNano()}, 1, false, nil},
		"in another stream":                {place{1, 9, stored.UnixNano()}, 1, false, nil},
		"at the beginning":                 {place{stream: created.UnixNano()}, 0, true, nil},
		"after one that was removed":       {of9, 1, true, &jetstream.RawStreamMsg{Sequence: 7, Time: stored}},
		"and a later one is there":         {of9, 1, true, &jetstream.RawStreamMsg{Sequence: 10, Time: stored.Add(1)}},
		"and a number was given again":     {of9, 1, false, &jetstream.RawStreamMsg{Sequence: 7, Time: stored.Add(1)}},
		"and its number was given again":   {of9, 1, false, &jetstream.RawStreamMsg{Sequence: 9, Time: stored.Add(1)}},
	} {
		w, _ := newTestWatch(t)
		w.at, w.broken, w.subjects = tt.at, false, allOf("c", "n")
		info := jetstream.StreamInfo{Created: created, State: jetstream.StreamState{FirstSeq: tt.first, LastSeq: 20}}
		stream := streamOf(*cmp.Or(tt.other, &jetstream.RawStreamMsg{Sequence: tt.at.message, Time: stored}))
		stream.held = slices.Insert(stream.held, 0, &jetstream.RawStreamMsg{Subject: nodeSubject("c", "n"), Sequence: 5, Time: stored.Add(-1)},
			&jetstream.RawStreamMsg{Subject: nodeSubject("c", "other"), Sequence: 6, Time: stored.Add(1)}) // then the clock was set back
		if tt.other == nil {
			stream.held = slices.Insert(stream.held, 2, &jetstream.RawStreamMsg{Subject: nodeSubject("c", "n"), Sequence: 7, Time: stored.Add(1)})
		}
		w.store = stream.on()
		if got, err := w.continues(t.Context(), &info); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tt.want)
		}
		if stream.mute = nats.ErrBadHeaderMsg; tt.other == nil {
			continue
		}
		if got, err := w.continues(t.Context(), &info); err != nil || got != tt.want || stream.left() > 0 { // or nobody can read it
			t.Errorf("%s, which cannot be read: %v, %v, and %d consumers are left; want %v", name, got, err, stream.left(), tt.want)
		}
		stream.deaf = errors.New("refused")
		if got, err := w.continues(t.Context(), &info); got || fmt.Sprint(err) != "receive messages: not connected to : refused" {
			t.Errorf("%s, and no consumer receives: %v, %v", name, got, err)
		}
	}
	for conn, want := range map[*nats.Conn]string{nil: "receive messages: not connected to : " + nats.ErrConnectionClosed.Error(), new(nats.Conn): errBehind.Error()} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newTestWatch(t)
			stream := &memoryStream{conn: conn, late: 1}
			w.at, w.store = of9, stream.on()
			if got, err := w.nothingNewBefore(t.Context()); got || fmt.Sprint(err) != want {
				t.Errorf("a message that does not come: %v, %v; want %s", got, err, want)
			}
		})
	}
}

// A consumer has all once no message of its subjects follows. Of a whole stream, the last messages may have been removed.
func TestHasAll(t *testing.T) {
	of := allOf("c", "n")
	for name, tt := range map[string]struct {
		subjects    []string
		got, newest uint64 // of nine messages
		all         bool
		then        uint64
	}{
		"everything":                     {nil, 9, 9, true, 9},
		"a message follows":              {nil, 5, 7, false, 5},
		"the last messages were removed": {nil, 5, 5, true, 9},
		"messages of others follow":      {of, 5, 5, true, 5},
		"a message of the subject, too":  {of, 5, 7, false, 5},
		"nobody says which follows":      {nil, 5, 0, false, 5},
	} {
		stream := streamOf(jetstream.RawStreamMsg{Sequence: tt.newest})
		stream.info.State.LastSeq = 9
		if tt.newest == 0 {
			stream.mute = errors.New("broken")
		}
		c := consumer{store: stream.on(), subjects: tt.subjects, last: tt.got}
		if all, err := c.hasAll(t.Context()); !errors.Is(err, stream.mute) || all != tt.all || c.last != tt.then {
			t.Errorf("%s: %v up to %d, %v; want %+v", name, all, c.last, err, tt)
		}
	}
}

// The newest message is known also if its headers cannot be read.
func TestNewestWithBadHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &memoryStream{conn: new(nats.Conn), mute: nats.ErrBadHeaderMsg}
		for _, subject := range []string{"a", "a", "b"} {
			stream.add(subject, nil)
		}
		if m, err := stream.on().newest(t.Context(), "a"); err != nil || m.Sequence != 2 || m.Subject != "a" {
			t.Errorf("got %+v, %v, want message 2", m, err)
		}
		if m, err := stream.on().newest(t.Context(), "c"); m != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %+v, %v, want that nothing comes", m, err)
		}
		if stream.left() > 0 {
			t.Errorf("%d consumers are left", stream.left())
		}
		stream.conn = nil
		if m, err := stream.on().newest(t.Context(), "c"); m != nil || !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("got %+v, %v of a connection that is closed", m, err)
		}
		stream.deaf = errors.New("refused")
		if m, err := stream.on().newest(t.Context(), "a"); m != nil || fmt.Sprint(err) != "receive messages: not connected to : refused" {
			t.Errorf("got %+v, %v without a consumer", m, err)
		}
	})
}

// After the states of all nodes, or the events since a position, the watch knows how far it is.
func TestCatchUp(t *testing.T) {
	for replay, want := range map[bool]uint64{true: 5, false: 0} {
		w, got := newTestWatch(t)
		stream, at := new(memoryStream), time.Unix(2000, 0)
		stream.info.TimeStamp = at
		for _, node := range []string{"m", "n", "m"} {
			stream.add(nodeSubject("c", node), encode(newMessage("", ofAgent, new(pleg.Event))))
		}
		w.store, w.o.Cluster, w.end = stream.on(), "c", place{7, 2, 1}
		w.known.message = 5 // of another server
		config := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}
		if !replay {
			config.DeliverPolicy, w.seen, w.broken = jetstream.DeliverByStartSequencePolicy, nil, false
		}
		for _, least := range []uint64{0, 9} {
			w.withheld, w.start, w.owes, *got = least, least*2/3, true, nil
			messages, err := w.consume(t.Context(), config)
			kit.Must(t, err)
			kit.Must(t, w.catchUp(t.Context(), messages, config))
			messages.Stop()
			if end := (*got)[len(*got)-1]; w.withheld != max(want, least) || w.start != max(want, least*2/3) || w.owes || w.broken || w.seen != nil || w.at != (place{7, 3, at.UnixNano()}) || end.Type != pleg.Synced || end.At != w.position(w.at) {
				t.Errorf("replay %v: at %+v, %d and %d after %+v", replay, w.at, w.withheld, w.start, end)
			}
			w.broken, want = replay, max(want, least)
			if replay {
				w.seen, w.at = make(map[string]struct{}), place{}
			}
		}
	}
}

// The error of a watch that cannot begin names the option.
func TestBadWatchOptions(t *testing.T) {
	start, bad, since := Position(""), Position("x"), time.Unix(1000, 0)
	if _, err := (&WatchOptions{Cluster: "c", After: &start}).complete(); err != nil {
		t.Errorf("the empty position: %v", err)
	}
	const exclude = "WatchOptions.Replay, After and Since exclude each other: a watch that resumes gets a replay if necessary"
	for _, tt := range []struct {
		o    WatchOptions
		want string
	}{
		{WatchOptions{Nodes: []string{"n"}}, "WatchOptions.Cluster must not be empty"},
		{WatchOptions{Cluster: strings.Repeat("c", 81)}, "WatchOptions.Cluster has 81 bytes, the limit is 80"},
		{WatchOptions{Cluster: "c", Nodes: []string{"n", strings.Repeat("n", 254)}}, "WatchOptions.Nodes has 254 bytes, the limit is 253"},
		{WatchOptions{Cluster: "c", Nodes: []string{"a b", "n"}}, `WatchOptions.Nodes is "a b": want letters, digits, '-', '.' and '_'`},
		{WatchOptions{Cluster: "c", Replay: true, After: &start}, exclude},
		{WatchOptions{Cluster: "c", Replay: true, Since: since}, exclude},
		{WatchOptions{Cluster: "c", After: &start, Since: since}, exclude},
		{WatchOptions{Cluster: "c", After: &bad}, `WatchOptions.After: "x" is not a position of a fleet: want STREAM:MESSAGE:STORED, such as 18a5b5b0c2a7e400:120:18a5b5b1d0a7e400`},
		{WatchOptions{Cluster: "c", Filter: pleg.Filter{Selector: "(("}}, `WatchOptions.Filter: "((" is not a label selector: "((" does not begin with KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUES) or KEY notin (VALUES)`},
	} {
		var got error
		for _, err := range Watch(t.Context(), nil, tt.o) {
			got = err
		}
		if !errors.Is(got, pleg.ErrInvalidOption) || got.Error() != "watch fleet: "+tt.want {
			t.Errorf("%+v: %v, want %s", tt.o, got, tt.want)
		}
	}
}

// The position of a mark is the end of the stream, number and time, unless a message comes that the watch lacks. No mark and no
// event has a position within a replay.
func TestPositionOfABookmark(t *testing.T) {
	w, got := newTestWatch(t)
	end := time.Unix(2000, 7)
	stream := &memoryStream{held: []*jetstream.RawStreamMsg{{Subject: nodeSubject("c", "other"), Sequence: 9, Time: end}}}
	w.store = stream.on()
	w.subjects, w.at, w.broken = []string{"pleg.v2.c.n.>"}, place{1, 5, 5}, false
	kit.Must(t, w.sendBookmark(t.Context(), 5))
	if want := (place{1, 9, end.UnixNano()}).position(); len(*got) != 1 || (*got)[0].At != want {
		t.Errorf("got %+v, want the position %s", *got, want)
	}
	stream.add(nodeSubject("c", "n"), nil)
	if kit.Must(t, w.sendBookmark(t.Context(), 9)); len(*got) != 1 {
		t.Errorf("got %+v, although a message comes", (*got)[1])
	}
	for got, at := range map[uint64]uint64{10: 5, 0: 10} { // the watch has got it
		w.at.message = at
		kit.Must(t, w.sendBookmark(t.Context(), got))
	}
	if len(*got) != 3 {
		t.Errorf("got %+v, want two further marks", *got)
	}
	for _, broken := range []*error{&stream.mute, &stream.err} {
		*broken = errors.New("broken")
		if err := w.sendBookmark(t.Context(), 10); !errors.Is(err, *broken) {
			t.Errorf("sendBookmark() = %v, want %v", err, *broken)
		}
	}
	w.withheld = 20
	if within, then := w.position(place{1, 19, 1}), w.position(place{1, 20, 1}); within != "" || then == "" {
		t.Errorf("the position within a replay is %q, and at its end %q", within, then)
	}
}

// A quiet watch gets a mark about every ten seconds if it asks for them. It learns within half a minute that the messages of
// a node were removed, however often others publish.
func TestQuietWatch(t *testing.T) {
	for bookmarks, most := range map[bool]int{true: 6, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newTestWatch(t)
			created := time.Unix(1000, 0)
			stream := &memoryStream{conn: new(nats.Conn), info: jetstream.StreamInfo{Created: created}}
			lives := func() { stream.add(nodeSubject("c", "stays"), encode(newMessage("", ofAgent, new(pleg.Event)))) }
			lives()
			time.AfterFunc(time.Second, lives)
			for n := range 60 {
				if !bookmarks {
					time.AfterFunc(time.Duration(n)*time.Second, lives)
				}
			}
			w.store = stream.on()
			w.o, w.at, w.seen, w.owes, w.broken = WatchOptions{Cluster: "c", Bookmarks: bookmarks}, place{stream: created.UnixNano()}, nil, false, false
			w.nodes["stays"], w.nodes["left"], w.nodes["too"] = &progress{epoch: "e"}, &progress{epoch: "e"}, &progress{epoch: "e"}
			began, marks, gone := time.Now(), 0, make(map[string]string)
			w.yield = func(ev Event, _ error) bool {
				switch {
				case ev.Type == pleg.Bookmark && ev.At != "" && ev.ObservedAt.Equal(time.Now()):
					marks++
				case ev.Type == pleg.Gap && time.Since(began) > 20*time.Second && time.Since(began) < 30*time.Second:
					gone[ev.Node] += ev.Reason
				case ev.Type == pleg.Synced && (ev.At == "" || ev.At != w.at.position()):
					t.Errorf("the end of %s has the position %q, want %s", ev.Node, ev.At, w.at.position())
				}
				return true
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := w.connect(ctx); !errors.Is(err, context.DeadlineExceeded) || marks < most/2 || marks > most || !maps.Equal(gone, map[string]string{"left": NodeGone, "too": NodeGone}) {
				t.Errorf("%v after %d marks in a minute, want %d to %d; %q, want that two nodes have left", err, marks, most/2, most, gone)
			}
			if stream.found != 2 {
				t.Errorf("it looked for nodes that have left %d times in a minute, want one look each 20 s", stream.found)
			}
			stream.err = errors.New("broken")
			if err := w.look(t.Context()); !errors.Is(err, stream.err) {
				t.Errorf("look() = %v, want %v", err, stream.err)
			}
		})
	}
}

// A loop that is left gets nothing more, whatever would come next.
func TestLoopIsLeft(t *testing.T) {
	const want = 27
	for last := 1; ; last++ {
		all := 0
		synctest.Test(t, func(t *testing.T) {
			stream := &memoryStream{conn: new(nats.Conn)}
			add := func(node string, k kind, uid pleg.PodUID, seq uint64) {
				ev := pleg.Event{Epoch: "e", Seq: seq, Type: pleg.ContainerDied, PodUID: uid, ContainerID: "b"}
				subject, body := nodeSubject("c", node), encode(newMessage("", k, &ev))
				if uid != "" {
					r := newRecord(uid, "web", "shop")
					r.apply(&pleg.Event{Type: pleg.ContainerStarted, ContainerID: "a"})
					r.apply(&ev)
					subject = podSubject("c", node, uid)
					body, _ = r.encode(newMessage("", k, &ev), 1<<20)
				}
				header := map[bool]nats.Header{true: {batchSequence: {"2"}}} // the message before it is missing
				_, _ = stream.store(&nats.Msg{Subject: subject, Data: body, Header: header[k == ofEvent && node == "hole"]})
			}
			add("gone", ofState, "u", 1)
			add("gone", ofGone, "", 0)
			add("begins", ofGap, "", 0)
			add("begins", ofState, "v", 1)
			add("hole", ofState, "w", 1)
			time.AfterFunc(time.Second, func() { add("begins", ofSynced, "", 1) })
			time.AfterFunc(2*time.Second, func() { add("hole", ofEvent, "w", 3) })
			time.AfterFunc(3*time.Second, func() {
				add("begins", ofEvent, "v", 2)
				add("begins", ofGap, "", 0)
				add("begins", ofState, "v", 2)
				add("begins", ofSynced, "", 2)
				add("begins", ofGone, "", 0)
			})
			time.AfterFunc(4*time.Second, func() { stream.remove(">") })
			w, _ := newTestWatch(t)
			w.store, w.seen, w.owes, w.broken = stream.on(), nil, false, false
			w.o = WatchOptions{Cluster: "c", Replay: true, Bookmarks: true}
			w.yield = func(Event, error) bool { all++; return all < last }
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := w.connect(ctx); errors.Is(err, errStopped) != (all == last) || all > last || stream.left() > 0 {
				t.Errorf("left after %d events, it gets %d: %v; %d consumers are left", last, all, err, stream.left())
			}
		})
		if all < last || t.Failed() {
			if all != want {
				t.Errorf("%d events in all, want %d: a Gap, states, a Synced, marks and the end of each node", all, want)
			}
			return
		}
	}
}

// Each time that a stream of three servers is behind, the watch waits for it: after 15 s the servers have lost the rest.
func TestWaitBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watch
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 1}}
		of := func(stream int64, message uint64) place { return place{stream, message, 7} }
		for name, tt := range map[string]struct{ at, known, end, then place }{
			"a single server has lost it":  {of(1, 20), of(1, 18), of(1, 19), of(1, 19)},
			"further messages are there":   {of(1, 20), of(1, 18), of(1, 30), of(1, 20)},
			"it was behind before":         {of(1, 20), of(1, 25), of(1, 30), of(1, 25)},
			"the stream was created again": {of(1, 20), of(1, 25), of(2, 30), place{stream: 2}},
			"the watch begins":             {place{}, of(1, 20), of(1, 30), of(1, 20)},
			"after another stream":         {of(1, 28), of(2, 25), of(2, 30), of(2, 25)},
		} {
			w.at, w.known, w.end, w.behindSince = tt.at, tt.known, tt.end, time.Now()
			if kit.Must(t, w.waitBehind(info)); w.known != tt.then || !w.behindSince.IsZero() {
				t.Errorf("%s: the watch knows %+v, want %+v; behind since %v", name, w.known, tt.then, w.behindSince)
			}
		}
		info.Config.Replicas = 2
		for range 2 {
			w.at, w.end = place{message: 20}, place{message: 20}
			kit.Must(t, w.waitBehind(info))
			w.end.message = 19
			for range 4 {
				if err := w.waitBehind(info); !errors.Is(err, errBehind) {
					t.Errorf("waitBehind() = %v, want %v", err, errBehind)
				}
				time.Sleep(5 * time.Second)
			}
			if kit.Must(t, w.waitBehind(info)); w.known != w.end {
				t.Errorf("the watch knows %+v, want %+v, which is left", w.known, w.end)
			}
		}
	})
}

// After a connection that lasted, a watch tries again soon, and asks as short as at the beginning.
func TestAttemptsAfterALongConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stream := &memoryStream{err: errors.New("broken")}
		var waits []time.Duration
		w, _ := newTestWatch(t)
		w.store, w.js, w.unanswered = stream.on(), fakeJetStream{}, 9
		w.o.Disconnected = func(err error, in time.Duration) {
			if waits = append(waits, in); err.Error() != "stream: not connected to : broken" {
				t.Errorf("disconnected: %v", err)
			}
			if stream.takes = 0; len(waits) == 8 {
				stream.takes = searchTimeout + 1
			}
			if len(waits) == 9 {
				cancel()
			}
		}
		_ = w.run(ctx)
		if len(waits) != 9 || waits[7] < 5*time.Second/2 || waits[7] > 5*time.Second || waits[8] > 250*time.Millisecond {
			t.Errorf("waits %v, want them to grow to 5 s and begin again", waits)
		}
	})
}

// A watch that is connected has the patience of the first attempt.
func TestPatienceOfAWatch(t *testing.T) {
	w, _ := newTestWatch(t)
	w.store, w.broken, w.seen, w.owes = new(memoryStream).on(), false, nil, false
	w.store.patience = &w.patience
	if w.unanswered = 9; w.connect(t.Context()) == nil || w.timeout() != requestTimeout {
		t.Errorf("once it is connected, a request takes %v, want %v", w.timeout(), requestTimeout)
	}
	stream := &memoryStream{mute: errors.New("broken")}
	w.store = stream.on()
	if err := w.connect(t.Context()); fmt.Sprint(err) != "create consumer: not connected to : broken" {
		t.Errorf("connect() = %v without a consumer", err)
	}
	for _, tell := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newTestWatch(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			attempts := 0
			w.store, w.js = (&memoryStream{err: context.DeadlineExceeded}).on(), fakeJetStream{conn: connectTo(t, 100)}
			if tell {
				w.o.Disconnected = func(error, time.Duration) { attempts++ }
			}
			if err := w.run(ctx); err == nil || w.unanswered < 10 || tell && attempts != w.unanswered {
				t.Errorf("%v after %d attempts, of which %d had no answer", err, attempts, w.unanswered)
			}
		})
	}
}

// A consumer gets messages in their order without a word of it, from memory of the server, and no more than fit in the memory
// of an agent. It knows within two heartbeats that its leader is gone.
func TestConsumer(t *testing.T) {
	for subject, subjects := range map[string][]string{">": nil, "a": {"a"}, "": {"a", "b"}} {
		stream := new(memoryStream)
		stream.add("a", nil)
		stream.add("b", nil)
		s := stream.on()
		for unanswered, beat := range map[int]time.Duration{0: 2 * time.Second, 9: 12 * time.Second} {
			s.unanswered, s.buffer = unanswered, unanswered*3
			c, err := s.consume(t.Context(), jetstream.ConsumerConfig{FilterSubjects: subjects, OptStartSeq: 2})
			kit.Must(t, err)
			got := c.MessagesContext.(memoryMessages)
			want := jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, OptStartSeq: 2, FilterSubject: subject}
			if subject == "" {
				want.FilterSubjects = subjects
			}
			options := []jetstream.PullMessagesOpt{jetstream.PullMaxMessages(cmp.Or(s.buffer, 1000)), jetstream.PullHeartbeat(beat)}
			if !reflect.DeepEqual(got.config, want) || !reflect.DeepEqual(got.options, options) || c.last != 1 || c.left != got.pending || c.quiet != s.timeout() || !slices.Equal(c.subjects, subjects) {
				t.Errorf("%q: the consumer is %+v with %v, after %d, with %d left, quiet for %v; want %+v with %v", subjects, got.config, got.options, c.last, c.left, c.quiet, want, options)
			}
			if c.Stop(); !got.stopped.Load() {
				t.Error("it is left behind")
			}
		}
		stream.deaf = errors.New("refused")
		if _, err := s.snapshot(t.Context(), nil, nil); !errors.Is(err, stream.deaf) || err.Error() != "receive messages: not connected to : refused" {
			t.Errorf("snapshot() = %v of a consumer that does not receive", err)
		}
		stream.mute = errors.New("broken")
		if _, err := s.snapshot(t.Context(), nil, nil); !errors.Is(err, stream.mute) || err.Error() != "create consumer: not connected to : broken" {
			t.Errorf("snapshot() = %v without a consumer", err)
		}
	}
}

// No message for some seconds is no error, unless the leader has one twice, or does not say.
func TestNothingComes(t *testing.T) {
	for name, tt := range map[string]struct {
		subjects []string
		broken   error
		want     string
		after    time.Duration
	}{
		"nothing is there":      {[]string{"a"}, nil, "<nil>", requestTimeout},
		"something is there":    {[]string{"b"}, nil, "the server does not send messages that the leader has", 2 * requestTimeout},
		"nobody knows":          {[]string{"a"}, errors.New("broken"), "stream: not connected to : broken", 2 * requestTimeout},
		"its context has ended": {nil, nil, "receive messages: not connected to : the end", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := &memoryStream{conn: new(nats.Conn)}
			stream.add("b", nil)
			ctx, cancel := context.WithTimeoutCause(t.Context(), map[bool]time.Duration{true: time.Second, false: time.Hour}[tt.subjects == nil], errors.New("the end"))
			defer cancel()
			c, err := stream.on().consume(ctx, jetstream.ConsumerConfig{FilterSubjects: []string{"a"}})
			kit.Must(t, err)
			defer c.Stop()
			c.subjects, stream.err = tt.subjects, tt.broken
			began := time.Now()
			if m, err := c.next(ctx); m != nil || fmt.Sprint(err) != tt.want || time.Since(began).Round(time.Second) != tt.after {
				t.Errorf("%s: %v, %v after %v; want %s after %v", name, m, err, time.Since(began), tt.want, tt.after)
			}
		})
	}
}

// A consumer receives until it has all that the leader has, also if the last messages were removed, and waits for the rest.
func TestReceive(t *testing.T) {
	for name, tt := range map[string]struct {
		subjects    []string
		last, least uint64 // in the stream, and that another connection had received
		want        string
	}{
		"everything is there":            {nil, 2, 1, "2 <nil> after 0s, 2"},
		"the last messages were removed": {nil, 9, 0, "9 <nil> after 0s, 2"},
		"a replica is behind":            {nil, 2, 5, "5 <nil> after 0s, 2"},
		"the leader has another one":     {[]string{"b"}, 2, 0, "2 " + errBehind.Error() + " after 10s, 1"},
		"more come meanwhile":            {nil, 2, 0, "2 <nil> after 0s, 2"},
		"nobody says what is left":       {nil, 9, 0, "9 read message: not connected to : broken after 0s, 2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := &memoryStream{conn: new(nats.Conn)}
			stream.add("a", nil)
			stream.add("b", nil)
			stream.info.State.LastSeq = tt.last
			filter := []string{"a", "b"}
			if tt.subjects != nil {
				filter = filter[:1]
			}
			c, err := stream.on().consume(t.Context(), jetstream.ConsumerConfig{FilterSubjects: filter})
			kit.Must(t, err)
			defer c.Stop()
			if c.subjects = tt.subjects; name == "nobody says what is left" {
				stream.mute = errors.New("broken")
			}
			began, got := time.Now(), 0
			until, err := c.receive(t.Context(), tt.least, func(*jetstream.RawStreamMsg) error {
				if got++; name == "more come meanwhile" {
					stream.add("a", nil)
				}
				return nil
			})
			if text := fmt.Sprintf("%d %v after %v, %d", until, err, time.Since(began), got); text != tt.want {
				t.Errorf("%s: %s, want %s", name, text, tt.want)
			}
		})
	}
}

// A consumer that gets the third message after the first has lost one.
func TestMessageLostUnderWay(t *testing.T) {
	stream := new(memoryStream)
	stream.add("a", nil)
	stream.add("b", nil)
	for lost := range uint64(2) {
		c, err := stream.on().consume(t.Context(), jetstream.ConsumerConfig{})
		kit.Must(t, err)
		_, err = c.wait(t.Context())
		if kit.Must(t, err); c.left != 1 || c.last != 1 {
			t.Errorf("after the first message %d are left, the last one is %d", c.left, c.last)
		}
		c.MessagesContext.(memoryMessages).sent += lost
		if _, err := c.wait(t.Context()); fmt.Sprint(err) != map[uint64]string{0: "<nil>", 1: "a message was lost under way"}[lost] {
			t.Errorf("with %d lost: %v", lost, err)
		}
		c.Stop()
	}
	stream.bare = errors.New("of somebody else")
	c, err := stream.on().consume(t.Context(), jetstream.ConsumerConfig{})
	kit.Must(t, err)
	defer c.Stop()
	if m, err := c.wait(t.Context()); m != nil || !errors.Is(err, stream.bare) || err.Error() != "receive messages: of somebody else" {
		t.Errorf("a message without its number: %v, %v", m, err)
	}
}
