package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A replay that a connection did not complete begins again, with a Gap: of all nodes, or of one within later events.
func TestReplayBeginsAgain(t *testing.T) {
	created := time.Unix(1000, 0)
	for name, at := range map[string]place{"all": {}, "one node": {stream: created.UnixNano()}} {
		w, got := newTestWatch(t)
		w.store = (&fakeStream{info: jetstream.StreamInfo{Created: created}}).on()
		w.o, w.at, w.broken = WatchOptions{Replay: true}, at, true
		config, err := w.begin(t.Context())
		if err != nil || config.DeliverPolicy != jetstream.DeliverLastPerSubjectPolicy || len(*got) != 1 || (*got)[0].Type != pleg.Gap {
			t.Errorf("%s: %v, policy %v after %+v, want a Gap and the states", name, err, config.DeliverPolicy, *got)
		}
	}
}

// The state of one node, which comes within the states of all, does not complete these.
func TestNodeWithinTheReplayOfAll(t *testing.T) {
	w, got := newTestWatch(t)
	w.store = new(fakeStream).on()
	kit.Must(t, w.replayNode(t.Context(), "n", &pleg.Event{Reason: pleg.HistoryTooShort}, place{message: 9}))
	if !w.broken || len(*got) != 1 || w.position(place{message: 9}) != "" {
		t.Errorf("got %+v, complete: %v; want the Gap alone", *got, !w.broken)
	}
}

// A message of somebody else within the states of all makes nobody ask for a node again.
func TestGarbageWithinTheReplayOfAll(t *testing.T) {
	w, got := newTestWatch(t)
	w.store = (&fakeStream{newest: &jetstream.RawStreamMsg{Sequence: 1}}).on()
	kit.Must(t, w.handle(t.Context(), &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "u"), Sequence: 3, Data: []byte("garbage")}))
	if len(*got) > 0 || w.at.message != 3 {
		t.Errorf("got %+v at %d, want nothing", *got, w.at.message)
	}
}

// The position of a mark is the end of the stream: number and time.
func TestPositionOfABookmark(t *testing.T) {
	w, got := newTestWatch(t)
	end := time.Unix(2000, 7)
	w.store = (&fakeStream{info: jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 9, LastTime: end}}}).on()
	w.subjects, w.at, w.broken = []string{"pleg.v2.c.n.>"}, place{1, 5, 5}, false
	kit.Must(t, w.sendBookmark(t.Context(), 5))
	if want := (place{1, 9, end.UnixNano()}).position(); len(*got) != 1 || (*got)[0].At != want {
		t.Errorf("got %+v, want the position %s", *got, want)
	}
}

// Each time that a stream of three servers is behind, the watch waits for it: after 15 s the servers have lost the rest.
func TestWaitBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watch
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}}
		for range 2 {
			w.at, w.end = place{message: 20}, place{message: 20}
			kit.Must(t, w.waitBehind(info))
			w.end.message = 19
			for range 4 {
				if err := w.waitBehind(info); !errors.Is(err, errBehind) {
					t.Errorf("waitBehind() = %v, want %v", err, errBehind)
				}
				time.Sleep(behindTime / 3)
			}
			kit.Must(t, w.waitBehind(info))
		}
	})
}

// After a connection that lasted, a watch tries again soon, and asks as short as at the beginning.
func TestAttemptsAfterALongConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stream := &fakeStream{err: errors.New("broken")}
		var waits []time.Duration
		w, _ := newTestWatch(t)
		w.store, w.js, w.unanswered = stream.on(), fakeJetStream{}, 9
		w.o.Disconnected = func(_ error, in time.Duration) {
			waits = append(waits, in)
			if stream.takes = 0; len(waits) == 8 {
				stream.takes = searchTimeout + 1
			}
			if len(waits) == 9 {
				cancel()
			}
		}
		_ = w.run(ctx)
		if len(waits) != 9 || waits[7] < maxBackoff/2 || waits[8] > minBackoff {
			t.Errorf("waits %v, want them to grow to %v and begin again", waits, maxBackoff)
		}
	})
}

// A watch that is connected has the patience of the first attempt.
func TestPatienceOfAWatch(t *testing.T) {
	w, _ := newTestWatch(t)
	w.store, w.broken, w.seen, w.owes = new(fakeStream).on(), false, nil, false
	w.store.patience = &w.patience
	if w.unanswered = 9; w.connect(t.Context()) == nil || w.timeout() != requestTimeout {
		t.Errorf("once it is connected, a request takes %v, want %v", w.timeout(), requestTimeout)
	}
}

// A consumer that gets the third message after the first has lost one.
func TestMessageLostUnderWay(t *testing.T) {
	for _, sent := range [][]uint64{{1, 2}, {1, 3}} {
		c, err := (&fakeStream{sent: sent}).on().consume(t.Context(), jetstream.ConsumerConfig{})
		kit.Must(t, err)
		_, err = c.wait(t.Context())
		kit.Must(t, err)
		if _, err := c.wait(t.Context()); (err == nil) != (sent[1] == 2) {
			t.Errorf("messages %d: %v", sent, err)
		}
		c.Stop()
	}
}
