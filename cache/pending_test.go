package cache_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestPendingKnowsSinceWhen(t *testing.T) {
	c := cache.New(time.Minute)
	expect := func(step string, want ...cache.Pending) {
		t.Helper()
		got := c.Pending()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", step, got, want)
		}
		for i := range want {
			if got[i].UID != want[i].UID || !got[i].Since.Equal(want[i].Since) || got[i].Status != want[i].Status {
				t.Errorf("%s: %v, want %v", step, got, want)
			}
		}
	}
	status := &pleg.PodStatus{UID: "b"}
	c.Set("b", status, nil, at(1))
	c.Observe(at(2), []pleg.PodUID{"b"})
	expect("one changed", cache.Pending{UID: "b", Status: status, Since: at(2)})
	c.Observe(at(3), []pleg.PodUID{"a", "b"})
	expect("another one", cache.Pending{UID: "b", Status: status, Since: at(2)}, cache.Pending{UID: "a", Since: at(3)})
	c.Set("b", status, nil, at(2))
	expect("an inspection of what was listed before", cache.Pending{UID: "b", Status: status, Since: at(2)}, cache.Pending{UID: "a", Since: at(3)})
	c.Set("b", status, nil, at(3))
	expect("inspected", cache.Pending{UID: "a", Since: at(3)})
	c.Observe(at(4), nil)
	expect("settled")
	c.Observe(at(5), []pleg.PodUID{"a"})
	expect("a new change", cache.Pending{UID: "a", Since: at(5)})
}
