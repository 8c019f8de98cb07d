package logrecords_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/logrecords"
)

// Each promise can be broken.
func TestCheck(t *testing.T) {
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
		records := []logrecords.Record{{Name: "pleg.synced", Attributes: map[string]any{"pleg.epoch": "e", "pleg.seq": int64(0)}}}
		for _, ev := range tc.events {
			records = append(records, logrecords.Record{Name: "pleg.pod.sync", Attributes: map[string]any{
				"log.record.uid": fmt.Sprintf("e:%d", ev.Seq), "pleg.epoch": "e", "pleg.seq": int64(ev.Seq), "k8s.pod.uid": string(ev.PodUID),
			}})
		}
		if err := logrecords.Check(records, published); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}
