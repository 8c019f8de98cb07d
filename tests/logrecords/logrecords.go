// Package logrecords checks what a receiver of OTLP has kept against docs/otlp.md. Each promise
// is an error.
package logrecords

import (
	"errors"
	"fmt"
	"slices"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The errors of the promises.
var (
	ErrOrder    = errors.New("records are not in order")
	ErrIdentity = errors.New("two different records have the same log.record.uid")
	ErrNoHole   = errors.New("numbers are missing without a Gap")
	ErrComplete = errors.New("an event did not arrive")
)

// Attribute returns the text, number or truth value of an attribute; nil without one.
func Attribute(attributes []*commonv1.KeyValue, key string) any {
	for _, a := range attributes {
		if a.GetKey() == key {
			return Plain(a.GetValue())
		}
	}
	return nil
}

// Plain returns a text, a number or a truth value.
func Plain(v *commonv1.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonv1.AnyValue_StringValue:
		return v.StringValue
	case *commonv1.AnyValue_BoolValue:
		return v.BoolValue
	default:
		return v.(*commonv1.AnyValue_IntValue).IntValue
	}
}

// epoch is what came of one life of a pipeline.
type epoch struct {
	seen map[int64]bool // since the last Gap, and the highest of it
	high int64
	last int64 // the highest number up to which everything came
	// complete is true from the Synced that ends a replay until the next Gap.
	complete bool
	gap      int64 // the highest number of a Gap
}

// add returns an error if the next record is not in order, or does not follow the ones before.
func (e *epoch) add(name string, seq int64) error {
	switch {
	case name == "pleg.gap": // the present state follows
		e.complete, e.seen, e.high, e.gap = false, make(map[int64]bool), 0, max(e.gap, seq)
		return nil
	case name == "pleg.synced":
		e.complete, e.last = true, max(e.last, seq)
		return nil
	case seq < e.high && !e.seen[seq]:
		return fmt.Errorf("%w: the new number %d after %d", ErrOrder, seq, e.high)
	case e.complete && seq > e.last+1:
		return fmt.Errorf("%w: %d after %d", ErrNoHole, seq, e.last)
	}
	e.seen[seq], e.high = true, max(e.high, seq)
	if e.complete {
		e.last = max(e.last, seq)
	}
	return nil
}

// Check returns a broken promise, if there is one. published are events of the node; those
// that a Gap stands for need not arrive: their numbers are not above that of the Gap.
func Check(records []*logsv1.LogRecord, published []pleg.Event) error {
	byUID := make(map[any]*logsv1.LogRecord)
	epochs := make(map[any]*epoch)
	for i, r := range records {
		id, of, seq := attribute(r, "log.record.uid"), attribute(r, "pleg.epoch"), attribute(r, "pleg.seq").(int64)
		if before := byUID[id]; before == nil {
			byUID[id] = r
		} else if err := sameRecord(before, r); err != nil {
			return err
		}
		if epochs[of] == nil {
			epochs[of] = &epoch{seen: make(map[int64]bool)}
		}
		if err := epochs[of].add(r.GetEventName(), seq); err != nil {
			return fmt.Errorf("record %d, %v: %w", i, id, err)
		}
	}
	for _, ev := range published {
		p, _ := ev.Position()
		r, e := byUID[p.String()], epochs[p.Epoch]
		switch {
		case r == nil && e != nil && int64(p.Seq) <= e.gap:
		case r == nil:
			return fmt.Errorf("%w: %s %s", ErrComplete, p, ev.Type)
		case attribute(r, "k8s.pod.uid") != any(string(ev.PodUID)) || ev.ContainerID != "" && attribute(r, "container.id") != any(string(ev.ContainerID)):
			return fmt.Errorf("%w: %+v and %v", ErrIdentity, ev, r)
		}
	}
	return nil
}

func attribute(r *logsv1.LogRecord, key string) any { return Attribute(r.GetAttributes(), key) }

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
		return fmt.Errorf("%w: %v and %v", ErrIdentity, a, b)
	}
	return nil
}
