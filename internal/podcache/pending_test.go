package podcache_test

import (
	"errors"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestPendingSince(t *testing.T) {
	c := podcache.New()
	require := func(step string, want ...cache.Pending) {
		t.Helper()
		got := c.Pending()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", step, got, want)
		}
		for i := range want {
			if got[i].UID != want[i].UID || !got[i].Since.Equal(want[i].Since) || !errors.Is(got[i].Err, want[i].Err) || got[i].Status != want[i].Status || got[i].Pod.Name != string(want[i].UID) {
				t.Errorf("%s: %v, want %v", step, got, want)
			}
		}
	}
	status := &pleg.PodStatus{UID: "b"}
	c.Set("b", status, nil, at(1))
	c.Observe(at(2), listed("b"))
	require("one changed", cache.Pending{UID: "b", Status: status, Since: at(2)})
	c.Observe(at(3), listed("a", "b"))
	require("another changed", cache.Pending{UID: "b", Status: status, Since: at(2)}, cache.Pending{UID: "a", Since: at(3)})
	c.Set("b", status, nil, at(2))
	require("an inspection older than the listing", cache.Pending{UID: "b", Status: status, Since: at(2)}, cache.Pending{UID: "a", Since: at(3)})
	c.Set("b", status, nil, at(3))
	require("inspected", cache.Pending{UID: "a", Since: at(3)})
	c.Observe(at(4), nil)
	require("settled")
	c.Observe(at(5), listed("a"))
	require("a new change", cache.Pending{UID: "a", Since: at(5)})
	c.Set("a", nil, errInspect, at(4))
	require("an earlier inspection failed", cache.Pending{UID: "a", Err: errInspect, Since: at(5)})
}
