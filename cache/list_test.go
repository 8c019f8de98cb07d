package cache_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestList(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	broken := errors.New("broken")
	healthy, changing := &pleg.PodStatus{UID: "b-healthy"}, &pleg.PodStatus{UID: "c-changing"}

	c := cache.New()
	if got := c.List(); len(got) != 0 {
		t.Errorf("an empty cache lists %v", got)
	}
	c.Set(changing.UID, changing, nil, at(1))
	c.Set(healthy.UID, healthy, nil, at(2))
	c.Set("a-broken", nil, broken, at(3))
	c.Set("d-gone", &pleg.PodStatus{UID: "d-gone"}, nil, at(1))
	c.Delete("d-gone", at(4))
	c.Observe(at(4), nil)
	changed := listed(changing.UID, "a-broken", "e-new")
	c.Observe(at(5), changed)

	want := []cache.Entry{
		{UID: "a-broken", Err: broken, CurrentAsOf: at(3), Listed: changed[1]},
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
	for _, uid := range []pleg.PodUID{"d-gone", "unknown"} {
		if got, ok := c.Entry(uid); ok {
			t.Errorf("Entry(%s) = %+v, want none", uid, got)
		}
	}
}

// TestLastStatusSurvivesErrors requires that failed inspections leave the last good
// status and the time until which it is known.
func TestLastStatusSurvivesErrors(t *testing.T) {
	good := status("a", "good")
	for name, tc := range map[string]struct {
		steps  []step
		last   *pleg.PodStatus
		lastAt int
	}{
		"never inspected":                      {[]step{list(1, "a")}, nil, 0},
		"never inspected well":                 {[]step{list(1, "a"), fail(1), list(2, "a")}, nil, 0},
		"inspected":                            {[]step{setGood(good, 1)}, good, 1},
		"unchanged in later lists":             {[]step{setGood(good, 1), list(2), list(5)}, good, 5},
		"changed in a list":                    {[]step{setGood(good, 1), list(4), list(5, "a"), list(6, "a")}, good, 4},
		"failed":                               {[]step{setGood(good, 1), list(4), list(5, "a"), fail(5)}, good, 4},
		"failed between two lists":             {[]step{setGood(good, 1), list(4), fail(5), list(6, "a")}, good, 4},
		"failed twice":                         {[]step{setGood(good, 1), list(5, "a"), fail(5), list(6, "a"), fail(6), list(7, "a")}, good, 1},
		"seen unchanged alone":                 {[]step{setGood(good, 1), touch(3), list(4, "a"), fail(4)}, good, 3},
		"seen unchanged alone after a failure": {[]step{setGood(good, 1), fail(2), touch(3)}, good, 1},
		"gone and back":                        {[]step{setGood(good, 1), remove(2), fail(3)}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := cache.New()
			for _, s := range tc.steps {
				s(c)
			}
			var want time.Time
			if tc.lastAt > 0 {
				want = at(tc.lastAt)
			}
			if got, ok := c.Entry("a"); !ok || got.Last != tc.last || !got.LastAsOf.Equal(want) {
				t.Errorf("last status %+v as of %v, want %+v as of %v", got.Last, got.LastAsOf, tc.last, want)
			}
		})
	}
}

// A pod that never was inspected well is known as it was listed, between its failed
// inspections too.
func TestListedPodSurvivesErrors(t *testing.T) {
	c := cache.New()
	changed := listed("a")
	require := func(step string, want *pleg.Pod) {
		t.Helper()
		if e, ok := c.Entry("a"); !ok || e.Listed != want {
			t.Errorf("%s: listed as %+v, want %+v", step, e.Listed, want)
		}
	}
	c.Observe(at(1), changed)
	require("listed", changed[0])
	c.Set("a", nil, errInspect, at(1))
	require("failed", changed[0])
	c.Observe(at(2), changed)
	c.Set("a", nil, errInspect, at(2))
	require("failed again", changed[0])
	c.Set("a", status("a", "good"), nil, at(3))
	require("inspected", nil)
}

func setGood(s *pleg.PodStatus, n int) step {
	return func(c *cache.Cache) { c.Set("a", s, nil, at(n)) }
}
