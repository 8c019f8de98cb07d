package otlp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Each promise of docs/otlp.md is an error here.
var (
	errBrokeOrder    = errors.New("records are not in order")
	errBrokeIdentity = errors.New("two different records have the same log.record.uid")
	errBrokeNoHole   = errors.New("numbers are missing without a Gap")
	errBrokeComplete = errors.New("an event did not arrive")
)

// check returns a broken promise of what the receiver has kept, if there is one. published
// are the events of the node; those of them that a Gap stands for need not arrive.
func check(records []*logsv1.LogRecord, published []pleg.Event) error {
	byUID := make(map[string]*logsv1.LogRecord)
	var last int64 // the highest number up to which everything came
	replay := true // until the Synced that ends it
	for i, r := range records {
		id, seq := attribute(r, "log.record.uid").(string), attribute(r, "pleg.seq").(int64)
		if before := byUID[id]; before == nil {
			byUID[id] = r
		} else if err := sameRecord(before, r); err != nil {
			return err
		}
		switch {
		case r.GetEventName() == "pleg.gap":
			replay = true
		case r.GetEventName() == "pleg.synced":
			replay, last = false, max(last, seq)
		case replay:
		case seq > last+1:
			return fmt.Errorf("%w: record %d is %s after number %d", errBrokeNoHole, i, id, last)
		default:
			last = max(last, seq)
		}
	}
	if err := checkOrder(records); err != nil {
		return err
	}
	return checkComplete(byUID, records, published)
}

// sameRecord compares a record with its duplicate. Whether it is replayed may differ.
func sameRecord(a, b *logsv1.LogRecord) error {
	plain := func(r *logsv1.LogRecord) *logsv1.LogRecord {
		c := proto.CloneOf(r)
		c.Attributes = slices.DeleteFunc(c.GetAttributes(), func(a *commonv1.KeyValue) bool { return a.GetKey() == "pleg.replayed" })
		if attribute(a, "pleg.replayed") != attribute(b, "pleg.replayed") {
			c.Body = nil // it says so, too
		}
		if r.GetEventName() == "pleg.gap" || r.GetEventName() == "pleg.synced" {
			c.TimeUnixNano, c.ObservedTimeUnixNano = 0, 0 // a mark is made when it is needed
		}
		return c
	}
	if !proto.Equal(plain(a), plain(b)) {
		return fmt.Errorf("%w: %v and %v", errBrokeIdentity, a, b)
	}
	return nil
}

// checkOrder requires that the numbers grow. They may go back only for a replay or to
// repeat what came before.
func checkOrder(records []*logsv1.LogRecord) error {
	seen := make(map[int64]bool)
	var last int64
	for i, r := range records {
		seq := attribute(r, "pleg.seq").(int64)
		switch {
		case r.GetEventName() == "pleg.gap":
			seen = make(map[int64]bool) // what follows is the present state
			last = 0
		case r.GetEventName() == "pleg.synced":
		case seq < last && !seen[seq]:
			return fmt.Errorf("%w: record %d has the new number %d after %d", errBrokeOrder, i, seq, last)
		default:
			seen[seq], last = true, max(last, seq)
		}
	}
	return nil
}

// checkComplete requires that every event arrived except those that a Gap stands for: their
// numbers are not above that of the Gap.
func checkComplete(byUID map[string]*logsv1.LogRecord, records []*logsv1.LogRecord, published []pleg.Event) error {
	var gap int64
	for _, r := range records {
		if r.GetEventName() == "pleg.gap" {
			gap = max(gap, attribute(r, "pleg.seq").(int64))
		}
	}
	for _, ev := range published {
		if p, _ := ev.Position(); int64(ev.Seq) > gap && byUID[p.String()] == nil {
			return fmt.Errorf("%w: %s %s", errBrokeComplete, p, ev.Type)
		}
	}
	return nil
}

// requirePromises fails the test if a promise is broken.
func (n *node) requirePromises() {
	n.t.Helper()
	_, records := n.receiver.got()
	if err := check(records, n.published()); err != nil {
		n.t.Fatal(err)
	}
}

// The oracle itself: each promise can be broken.
func TestOracle(t *testing.T) {
	var published []pleg.Event
	for seq := range uint64(4) {
		published = append(published, pleg.Event{Type: pleg.PodSync, Epoch: "e", Seq: seq + 1, PodUID: "p"})
	}
	synced := pleg.Event{Type: pleg.Synced, Epoch: "e"}
	other := published[2]
	other.PodUID = "q"
	for name, tc := range map[string]struct {
		events []pleg.Event
		want   error
	}{
		"all":                 {events: published},
		"a repetition":        {events: []pleg.Event{published[0], published[1], published[0], published[1], published[2], published[3]}},
		"an event missing":    {events: []pleg.Event{published[0], published[1], published[3]}, want: errBrokeNoHole},
		"the last missing":    {events: published[:3], want: errBrokeComplete},
		"two of one identity": {events: []pleg.Event{published[0], published[1], published[2], other, published[3]}, want: errBrokeIdentity},
		"another order":       {events: []pleg.Event{published[0], published[2], published[1], published[3]}, want: errBrokeNoHole},
	} {
		t.Run(name, func(t *testing.T) {
			if err := check(recordsOf(append([]pleg.Event{synced}, tc.events...)...), published); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}
