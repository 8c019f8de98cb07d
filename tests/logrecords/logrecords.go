// Package logrecords checks the records that a receiver of OTLP has kept against docs/otlp.md. Each
// promise is an error.
package logrecords

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The errors of the promises.
var (
	ErrOrder    = errors.New("records are not in order")
	ErrIdentity = errors.New("two different records have the same log.record.uid")
	ErrNoHole   = errors.New("numbers are missing without a Gap")
	ErrComplete = errors.New("an event did not arrive")
)

// Record is a log record as a receiver gets it.
type Record struct {
	Name, Severity, Body string
	Time                 time.Time
	// Attributes are texts, numbers (int64) and truth values.
	Attributes map[string]any
}

// epoch contains the records of one life of a pipeline.
type epoch struct {
	seen map[int64]bool // numbers since the last Gap, and the highest
	high int64
	last int64 // the highest number up to which everything came
	// complete is true from the Synced that ends a replay until the next Gap.
	complete bool
	gap      int64 // the highest number of a Gap
}

// add returns an error if the next record is not in order, or does not follow the records before.
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

// Check returns a broken promise, if there is any. published are events of the node. Events that a
// Gap stands for need not arrive: their numbers are not above the number of the Gap.
func Check(records []Record, published []pleg.Event) error {
	byUID := make(map[any]*Record)
	epochs := make(map[any]*epoch)
	for i := range records {
		r := &records[i]
		id, of, seq := r.Attributes["log.record.uid"], r.Attributes["pleg.epoch"], r.Attributes["pleg.seq"].(int64)
		if before := byUID[id]; before == nil {
			byUID[id] = r
		} else if err := sameRecord(before, r); err != nil {
			return err
		}
		if epochs[of] == nil {
			epochs[of] = &epoch{seen: make(map[int64]bool)}
		}
		if err := epochs[of].add(r.Name, seq); err != nil {
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
		case r.Attributes["k8s.pod.uid"] != any(string(ev.PodUID)) || ev.ContainerID != "" && r.Attributes["container.id"] != any(string(ev.ContainerID)):
			return fmt.Errorf("%w: %+v and %v", ErrIdentity, ev, r)
		}
	}
	return nil
}

// sameRecord compares a record with its duplicate. Whether it is replayed may differ.
func sameRecord(a, b *Record) error {
	same := func(r Record) Record {
		r.Attributes = maps.Clone(r.Attributes)
		delete(r.Attributes, "pleg.replayed")
		if a.Attributes["pleg.replayed"] != b.Attributes["pleg.replayed"] {
			r.Body = "" // the body says "replayed", too
		}
		if r.Name == "pleg.gap" || r.Name == "pleg.synced" {
			r.Time = time.Time{} // a mark is made when it is needed
		}
		return r
	}
	if !reflect.DeepEqual(same(*a), same(*b)) {
		return fmt.Errorf("%w: %v and %v", ErrIdentity, a, b)
	}
	return nil
}
