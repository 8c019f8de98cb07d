package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A whole fleet comes back at once when its server does. So an agent whose connection broke reads
// only what was not acknowledged: not even the names of its states. A whole fleet may start at once,
// too: then neither an agent nor the watch that sees it makes the server search the bucket, through
// a consumer or by a batched direct get.
func TestAgentsReadLittle(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		happens func(f *field)
		more    []string // requests that must not come
	}{
		{"return", func(f *field) { f.a.lose(f.relay) }, []string{"$JS.API.STREAM.INFO.KV_" + fleet.StateBucket}},
		{"start", (*field).beginsAgain, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := startField(t, fieldOptions{})
			searches := searchesOfStates(t, f.server.URL, tt.more...)
			for range 3 {
				tt.happens(f)
				f.converges()
			}
			for _, searched := range searches {
				if m, err := searched.NextMsg(0); err == nil {
					t.Errorf("the server searched the states: %s %s", m.Subject, m.Data)
				}
			}
		})
	}
}

// A node with more keys than the server sends at once is read all the same: its agent removes
// those of pods that are gone.
func TestNodeWithManyKeys(t *testing.T) {
	t.Parallel()
	f := startField(t, fieldOptions{})
	f.a.stop()
	js := jetStream(t, connect(t, f.server.URL))
	const keys = 1100
	for i := range keys {
		gone := fmt.Sprintf("$KV.%s.test_example.node-a.shop.gone-%d", fleet.StateBucket, i)
		if _, err := js.PublishAsync(gone, []byte(`{"epoch":"gone","uid":"gone"}`)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	f.beginsAgain()
	f.converges()
	f.late()
	for _, key := range keysOf(t, js, "test_example.node-a.shop.*") {
		if strings.Contains(key, ".gone-") {
			t.Errorf("%s is left", key)
		}
	}
}

// keysOf returns the keys of the states that match.
func keysOf(t *testing.T, js jetstream.JetStream, match ...string) (keys []string) {
	t.Helper()
	bucket, err := js.KeyValue(t.Context(), fleet.StateBucket)
	kit.Must(t, err)
	listed, err := bucket.ListKeysFiltered(t.Context(), match...)
	kit.Must(t, err)
	for key := range listed.Keys() {
		keys = append(keys, key)
	}
	return keys
}

// searchesOfStates receives a message for each consumer of the states that is created, for each
// batched direct get, and for each request with a subject of more.
func searchesOfStates(t *testing.T, url string, more ...string) []*nats.Subscription {
	t.Helper()
	conn := connect(t, url)
	var searches []*nats.Subscription
	more = append(more, "$JS.EVENT.ADVISORY.CONSUMER.CREATED.KV_"+fleet.StateBucket+".>", "$JS.API.DIRECT.GET.KV_"+fleet.StateBucket)
	for _, subject := range more {
		sub, err := conn.SubscribeSync(subject)
		kit.Must(t, err)
		searches = append(searches, sub)
	}
	kit.Must(t, conn.Flush())
	return searches
}

// awaitDisconnected waits until the agent has noticed that the server is away.
func (a *agent) awaitDisconnected() {
	a.t.Helper()
	until(a.t, func() error {
		if a.conn.IsConnected() {
			return errors.New("the agent is connected, although the server is away")
		}
		return nil
	})
}

// lose makes the agent send events that do not arrive, and cuts its connection.
func (a *agent) lose(r *relay) {
	r.hold()
	a.steps(30)
	time.Sleep(50 * time.Millisecond) // for the agent to send something
	r.cut()
	r.release()
}
