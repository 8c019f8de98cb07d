package otlp_test

import (
	"errors"
	"testing"

	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/logrecords"
)

func attribute(r *logsv1.LogRecord, key string) any {
	return logrecords.Attribute(r.GetAttributes(), key)
}

// requirePromises fails the test if a promise is broken, or a request has more records than
// allowed.
func (n *node) requirePromises(maxBatch int) {
	n.t.Helper()
	requests, records := n.receiver.got()
	var published []pleg.Event
	for len(n.truth.Events()) > 0 {
		published = append(published, <-n.truth.Events())
	}
	kit.Must(n.t, logrecords.Check(records, published))
	for i, r := range requests {
		if got := len(r.records()); got == 0 || got > maxBatch {
			n.t.Errorf("request %d has %d records, want 1 to %d", i, got, maxBatch)
		}
	}
}

// The oracle itself: each promise can be broken.
func TestOracle(t *testing.T) {
	var published []pleg.Event
	for seq := range uint64(4) {
		published = append(published, pleg.Event{Type: pleg.PodSync, Epoch: "e", Seq: seq + 1, PodUID: "p"})
	}
	one, two, three, four := published[0], published[1], published[2], published[3]
	other := three
	other.PodUID = "q"
	for name, tc := range map[string]struct {
		events []pleg.Event
		want   error
	}{
		"all":                 {events: published},
		"a repetition":        {events: []pleg.Event{one, two, one, two, three, four}},
		"an event missing":    {events: []pleg.Event{one, two, four}, want: logrecords.ErrNoHole},
		"the last missing":    {events: published[:3], want: logrecords.ErrComplete},
		"two of one identity": {events: []pleg.Event{one, two, three, other, four}, want: logrecords.ErrIdentity},
		"another order":       {events: []pleg.Event{one, three, two, four}, want: logrecords.ErrNoHole},
	} {
		synced := pleg.Event{Type: pleg.Synced, Epoch: "e"}
		if err := logrecords.Check(recordsOf(append([]pleg.Event{synced}, tc.events...)...), published); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}
