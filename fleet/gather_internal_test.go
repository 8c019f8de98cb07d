package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// sent is a message of a consumer of a bucket.
type sent struct {
	jetstream.KeyValueEntry

	key             string
	revision, delta uint64
}

func (s sent) Key() string                     { return s.key }
func (s sent) Revision() uint64                { return s.revision }
func (s sent) Delta() uint64                   { return s.delta }
func (s sent) Value() []byte                   { return nil }
func (s sent) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

// messages returns messages, each of which is a key, its revision and, after a slash, how many follow.
// A dash is the mark.
func messages(text string) chan jetstream.KeyValueEntry {
	words := strings.Fields(text)
	updates := make(chan jetstream.KeyValueEntry, len(words))
	for _, word := range words {
		var m sent
		if n, _ := fmt.Sscanf(word, "%1s%d/%d", &m.key, &m.revision, &m.delta); n > 1 {
			updates <- m
		} else {
			updates <- nil
		}
	}
	return updates
}

// The messages that nats.go delivers while a bucket of the keys a, b and c is rewritten: its mark
// comes after as many messages as there were keys.
func TestGather(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		sent   string
		began  uint64
		leader []uint64 // what it has, each time it is asked
		want   string
		behind bool
	}{
		{name: "in peace", sent: "a1 b2 c3 -", leader: []uint64{3}, want: "a b c"},
		{name: "empty", sent: "-", leader: []uint64{0}},
		{name: "one comes twice, and another after the mark", sent: "a1/3 c3/2 a4/1 - b5", began: 3, leader: []uint64{5}, want: "a c b"},
		{name: "one is rewritten again after the leader was asked", sent: "a1/3 c3/2 a4/2 - c6/1 b7", began: 3, leader: []uint64{5}, want: "a c b"},
		{name: "the replica that answers is behind", sent: "a1 - b2 c3", began: 3, leader: []uint64{3}, want: "a b c"},
		{name: "what is missing was removed, and its mark too", sent: "a1 b2 -", leader: []uint64{3, 2}, want: "a b"},
		{name: "the replica is behind with a key that it has sent", sent: "a1 b2 - a3", began: 3, leader: []uint64{3}, want: "a b", behind: true},
	}
	for _, tt := range tests {
		kit.Bubble(t, tt.name, func(t *testing.T) {
			var got []string
			err := gather(t.Context(), messages(tt.sent), tt.began, func() (uint64, error) {
				leader := tt.leader[0]
				tt.leader = tt.leader[1:]
				return leader, nil
			}, func(e entry) error { got = append(got, e.key); return nil })
			if strings.Join(got, " ") != tt.want || errors.Is(err, errBehind) != tt.behind || err != nil && !tt.behind {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
			if len(tt.leader) > 0 {
				t.Errorf("the leader was not asked %d more times", len(tt.leader))
			}
		})
	}
}

// A server that sends nothing more ends the read with an error, and so does a watcher that ends.
func TestGatherEndsWithAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		behind := func() (uint64, error) { return 2, nil }
		none := func(entry) error { return nil }
		updates := messages("a1 -")
		if err := gather(t.Context(), updates, 0, behind, none); !errors.Is(err, errReadTimeout) || time.Since(began) > 2*idleTimeout {
			t.Errorf("got %v after %v, want that the server stopped sending", err, time.Since(began))
		}
		close(updates)
		if err := gather(t.Context(), updates, 0, behind, none); !errors.Is(err, errReadTimeout) {
			t.Errorf("got %v, want that the server stopped sending", err)
		}
	})
}

// A caller may take longer for an entry than the server may.
func TestGatherForSlowCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		updates := make(chan jetstream.KeyValueEntry, 32)
		for i := range uint64(31) {
			updates <- sent{key: string(rune('a' + i)), revision: i + 1, delta: 30 - i}
		}
		updates <- nil
		slow := func(entry) error { time.Sleep(2 * idleTimeout); return nil }
		if err := gather(t.Context(), updates, 31, func() (uint64, error) { return 31, nil }, slow); err != nil {
			t.Error(err)
		}
	})
}
