package server

import (
	"slices"
	"testing"
)

// A place that is being given up counts no more: the next client gets another one.
func TestEvictedPlacesDoNotCount(t *testing.T) {
	p := newPlaces(4)
	var evicted []string
	acquire := func(client, name string) bool {
		_, ok := p.acquire(newPlace(client, func() { evicted = append(evicted, name) }))
		return ok
	}
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		acquire("a", name)
	}
	if !acquire("b", "b1") || !acquire("c", "c1") || !slices.Equal(evicted, []string{"a4", "a3"}) {
		t.Errorf("evicted %v, want the two newest of a", evicted)
	}
	if acquire("b", "b2") {
		t.Errorf("b has as many places as a, evicted %v", evicted)
	}
}
