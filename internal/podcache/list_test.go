package podcache_test

import (
	"reflect"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestList(t *testing.T) {
	healthy, changing := &pleg.PodStatus{UID: "b-healthy"}, &pleg.PodStatus{UID: "c-changing"}

	c := podcache.New()
	if got := c.List(); len(got) != 0 {
		t.Errorf("an empty cache lists %v", got)
	}
	c.Set(changing.UID, changing, nil, at(1))
	c.Set(healthy.UID, healthy, nil, at(2))
	c.Set("a-broken", nil, errInspect, at(3))
	c.Set("d-gone", &pleg.PodStatus{UID: "d-gone"}, nil, at(1))
	c.Delete("d-gone", at(4))
	c.Observe(at(4), nil)
	changed := listed(changing.UID, "a-broken", "e-new")
	c.Observe(at(5), changed)
	c.Delete("f-gone", at(6))

	want := []cache.Entry{
		{UID: "a-broken", Err: errInspect, CurrentAsOf: at(3), Listed: changed[1]},
		{UID: healthy.UID, Status: healthy, CurrentAsOf: at(5), Last: healthy, LastAsOf: at(5)},
		{UID: changing.UID, Status: changing, CurrentAsOf: at(1), Last: changing, LastAsOf: at(4), Listed: changed[0]},
		{UID: "e-new", Err: cache.ErrNotInspected, Listed: changed[2]},
	}
	if got := c.List(); !reflect.DeepEqual(got, want) {
		t.Errorf("List() = %+v, want %+v", got, want)
	}
	for _, e := range want {
		if got, ok := c.Entry(e.UID); !ok || !reflect.DeepEqual(got, e) {
			t.Errorf("Entry(%s) = %+v, %t, want %+v", e.UID, got, ok, e)
		}
	}
	for _, uid := range []pleg.PodUID{"d-gone", "f-gone", "unknown"} {
		if got, ok := c.Entry(uid); ok {
			t.Errorf("Entry(%s) = %+v, want none", uid, got)
		}
	}
}

// TestLastStatusSurvivesErrors requires that failed inspections leave the last good
// status and the time until which it is known.
func TestLastStatusSurvivesErrors(t *testing.T) {
	good := func(n int) step { return setNamed("good", n) }
	for name, tc := range map[string]struct {
		steps  []step
		lastAt int // 0: none
	}{
		"never inspected":                      {[]step{list(1, "a")}, 0},
		"never inspected well":                 {[]step{list(1, "a"), fail(1), list(2, "a")}, 0},
		"inspected":                            {[]step{good(1)}, 1},
		"unchanged in later lists":             {[]step{good(1), list(2), list(5)}, 5},
		"changed in a list":                    {[]step{good(1), list(4), list(5, "a"), list(6, "a")}, 4},
		"failed":                               {[]step{good(1), list(4), list(5, "a"), fail(5)}, 4},
		"failed between two lists":             {[]step{good(1), list(4), fail(5), list(6, "a")}, 4},
		"failed twice":                         {[]step{good(1), list(5, "a"), fail(5), list(6, "a"), fail(6), list(7, "a")}, 1},
		"seen unchanged alone":                 {[]step{good(1), touch(3), list(4, "a"), fail(4)}, 3},
		"seen unchanged alone after a failure": {[]step{good(1), fail(2), touch(3)}, 1},
		"gone and back":                        {[]step{good(1), remove(2), fail(3)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := after(tc.steps...).Entry("a")
			switch known := tc.lastAt > 0; {
			case !ok, known != (got.Last != nil), known && got.Last.Name != "good", !known && !got.LastAsOf.IsZero():
				t.Errorf("entry %+v, want a last status: %v", got, known)
			case known && !got.LastAsOf.Equal(at(tc.lastAt)):
				t.Errorf("last status as of %v, want %v", got.LastAsOf, at(tc.lastAt))
			}
		})
	}
}

// A pod that never was inspected well is known as it was listed, between its failed
// inspections too.
func TestListedPodSurvivesErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		steps []step
		want  bool
	}{
		"listed":       {[]step{list(1, "a")}, true},
		"failed":       {[]step{list(1, "a"), fail(1)}, true},
		"failed again": {[]step{list(1, "a"), fail(1), list(2, "a"), fail(2)}, true},
		"inspected":    {[]step{list(1, "a"), fail(1), set(3)}, false},
	} {
		if e, ok := after(tc.steps...).Entry("a"); !ok || (e.Listed != nil) != tc.want {
			t.Errorf("%s: listed as %+v, want it known: %v", name, e.Listed, tc.want)
		}
	}
}
