package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// A lease says that all is published up to the time of a list, once no earlier message waits.
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

// An agent reports each pod that fails, and of many those that fail the longest.
func TestHealthHasThePods(t *testing.T) {
	for failed, want := range map[int]int{2: 2, maxPods + 50: maxPods} {
		var status pleg.Status
		for n := range failed {
			status.Failed = append(status.Failed, pleg.Failed{UID: pleg.PodUID(fmt.Sprint(n)), Since: time.Unix(int64(1000-n), 0), Err: errors.New("broken")})
		}
		p := Publisher{o: PublisherOptions{Health: func(context.Context) (pleg.Status, error) { return status, nil }}}
		h := p.examine(t.Context())
		if len(h.Pods) != want || h.Pods[0].PodUID != status.Failed[failed-1].UID {
			t.Errorf("%d pods fail: reported are %d, %+v; want %d, the last first", failed, len(h.Pods), h.Pods, want)
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
