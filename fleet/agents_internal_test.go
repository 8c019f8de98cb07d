package fleet

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// keptLease is a bucket with one value.
type keptLease struct {
	jetstream.KeyValue

	value agentState
}

func (k *keptLease) Update(_ context.Context, _ string, value []byte, last uint64) (uint64, error) {
	k.value = agentState{}
	return last + 1, json.Unmarshal(value, &k.value)
}

// A lease says that all is published up to the time of a list, once no message of before it waits.
func TestLeaseIsBehindWhatWaits(t *testing.T) {
	bucket, at := &keptLease{}, time.Unix(1000, 0)
	var p Publisher
	p.bucket, p.revision = bucket, 1
	for _, step := range []struct {
		waiting       int // messages
		listed, known time.Time
	}{{1, at, time.Time{}}, {0, at, at}, {2, at.Add(time.Minute), at}, {0, at.Add(time.Minute), at.Add(time.Minute)}} {
		p.queue, p.currentAsOf = make([]outgoing, step.waiting), step.listed
		kit.Must(t, p.renew(t.Context(), health{}))
		if got := bucket.value.CurrentAsOf; !got.Equal(step.known) {
			t.Errorf("while %d messages wait: known as of %v, want %v", step.waiting, got, step.known)
		}
	}
}

// A pod is known as of its last message, or of the newest list of its node that is published, however long ago
// that message was.
func TestPodIsKnownAsOfTheNewestList(t *testing.T) {
	at, r := time.Unix(1000, 0), record{}
	body, _ := r.encode(newMessage("", ofState, &pleg.Event{Epoch: "e", PodUID: "a", ObservedAt: at}), 1<<20)
	m := &jetstream.RawStreamMsg{Subject: podSubject("c", "n", "a"), Data: body}
	for listed, want := range map[time.Time]time.Time{{}: at, at.Add(-time.Hour): at, at.Add(time.Hour): at.Add(time.Hour)} {
		pod, ok := podOf(map[string]Node{"n": {Name: "n", CurrentAsOf: listed}}, m)
		if !ok || !pod.CurrentAsOf.Equal(want) {
			t.Errorf("with a list of %v the pod %v is known as of %v, want %v", listed, ok, pod.CurrentAsOf, want)
		}
	}
}
