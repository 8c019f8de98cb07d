package differ

import (
	"testing"
	"time"
)

func TestRecentIsBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := newRecent[int](time.Hour, 3)
	for n := range 10 {
		r.add(n, now)
	}
	if len(r.since) != 3 || len(r.order) != 3 || !r.has(9, now) || r.has(6, now) {
		t.Errorf("members %v in the order %v, want the newest 3", r.since, r.order)
	}
}

// Without a list nothing is forgotten, but what is kept is bounded.
func TestRemovalsAreBounded(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(1_700_000_000, int64(n)) }
	var all removals
	for n := range 10 * maxRemoved {
		var k known
		k.remove("c", removal{at: at(n), byEvent: true}, &all)
		if len(k.removed) == 0 && k.listed.Before(at(n)) {
			t.Fatalf("removal %d is neither remembered nor a reason to doubt what is older", n)
		}
	}
	if all.count != 2*maxRemoved {
		t.Errorf("%d removals are remembered, want %d", all.count, 2*maxRemoved)
	}
}
