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
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each promise of docs/otlp.md is an error here.
var (
	errBrokeOrder    = errors.New("records are not in order")
	errBrokeIdentity = errors.New("two different records have the same log.record.uid")
	errBrokeNoHole   = errors.New("numbers are missing without a Gap")
	errBrokeComplete = errors.New("an event did not arrive")
)

func attribute(r *logsv1.LogRecord, key string) any {
	for _, a := range r.GetAttributes() {
		if a.GetKey() == key {
			return plain(a.GetValue())
		}
	}
	return nil
}

func plain(v *commonv1.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonv1.AnyValue_StringValue:
		return v.StringValue
	case *commonv1.AnyValue_BoolValue:
		return v.BoolValue
	default:
		return v.(*commonv1.AnyValue_IntValue).IntValue
	}
}

// check returns a broken promise of what the receiver has kept, if there is one. published
// are the events of the node; those of them that a Gap stands for need not arrive: their
// numbers are not above that of the Gap.
func check(records []*logsv1.LogRecord, published []pleg.Event) error {
	byUID := make(map[string]*logsv1.LogRecord)
	seen := make(map[int64]bool) // since the last Gap, and the highest of it
	var high int64
	var last int64 // the highest number up to which everything came
	replay := true // until the Synced that ends it
	var gap int64  // the highest number of one
	for i, r := range records {
		id, seq := attribute(r, "log.record.uid").(string), attribute(r, "pleg.seq").(int64)
		if before := byUID[id]; before == nil {
			byUID[id] = r
		} else if err := sameRecord(before, r); err != nil {
			return err
		}
		switch r.GetEventName() {
		case "pleg.gap":
			replay, seen, high, gap = true, make(map[int64]bool), 0, max(gap, seq) // the present state follows
			continue
		case "pleg.synced":
			replay, last = false, max(last, seq)
			continue
		}
		if seq < high && !seen[seq] {
			return fmt.Errorf("%w: record %d has the new number %d after %d", errBrokeOrder, i, seq, high)
		}
		seen[seq], high = true, max(high, seq)
		if !replay && seq > last+1 {
			return fmt.Errorf("%w: record %d is %s after number %d", errBrokeNoHole, i, id, last)
		}
		if !replay {
			last = max(last, seq)
		}
	}
	for _, ev := range published {
		if p, _ := ev.Position(); int64(ev.Seq) > gap && byUID[p.String()] == nil {
			return fmt.Errorf("%w: %s %s", errBrokeComplete, p, ev.Type)
		}
	}
	return nil
}

// sameRecord compares a record with its duplicate. Whether it is replayed may differ.
func sameRecord(a, b *logsv1.LogRecord) error {
	same := func(r *logsv1.LogRecord) *logsv1.LogRecord {
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
	if !proto.Equal(same(a), same(b)) {
		return fmt.Errorf("%w: %v and %v", errBrokeIdentity, a, b)
	}
	return nil
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
	kit.Must(n.t, check(records, published))
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
		"an event missing":    {events: []pleg.Event{one, two, four}, want: errBrokeNoHole},
		"the last missing":    {events: published[:3], want: errBrokeComplete},
		"two of one identity": {events: []pleg.Event{one, two, three, other, four}, want: errBrokeIdentity},
		"another order":       {events: []pleg.Event{one, three, two, four}, want: errBrokeNoHole},
	} {
		synced := pleg.Event{Type: pleg.Synced, Epoch: "e"}
		if err := check(recordsOf(append([]pleg.Event{synced}, tc.events...)...), published); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}
