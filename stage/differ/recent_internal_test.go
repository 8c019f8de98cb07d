package differ

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
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

// Without a listing nothing clears the graves.
func TestGravesAreBounded(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(1_700_000_000, int64(n)) }
	g := newTombstones()
	const flood = 10 * maxGraves
	for n := range flood {
		g.buryPod(pleg.PodUID(fmt.Sprint(n)), grave{at(n), at(n)})
		if len(g.pods) > maxGraves {
			t.Fatalf("%d pods are remembered, want at most %d", len(g.pods), maxGraves)
		}
	}
	for n := range flood {
		if got := g.grave(pleg.PodUID(fmt.Sprint(n))).at; got.Before(at(n)) {
			t.Fatalf("pod %d was found gone at %v, want not before %v", n, got, at(n))
		}
	}
}
