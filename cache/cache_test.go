package cache_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInspect = errors.New("inspection failed")

// at returns the time of the nth observation.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// status returns a status with a name that identifies it.
func status(uid pleg.PodUID, name string) *pleg.PodStatus {
	return &pleg.PodStatus{UID: uid, Name: name}
}

var first, second = status("a", "first"), status("a", "second")

var getCases = map[string]struct {
	do   func(c *cache.Cache)
	want *pleg.PodStatus
	err  error
}{
	"an unknown pod": {
		do:   func(*cache.Cache) {},
		want: &pleg.PodStatus{UID: "a"},
	},
	"a pod that a list covers and that was never inspected": {
		do:   func(c *cache.Cache) { c.Observe(at(1), nil) },
		want: &pleg.PodStatus{UID: "a"},
	},
	"inspected": {
		do:   func(c *cache.Cache) { c.Set("a", first, nil, at(1)) },
		want: first,
	},
	"a newer inspection wins": {
		do: func(c *cache.Cache) {
			c.Set("a", first, nil, at(1))
			c.Set("a", second, nil, at(2))
		},
		want: second,
	},
	"an older inspection is ignored": {
		do: func(c *cache.Cache) {
			c.Set("a", second, nil, at(2))
			c.Set("a", first, nil, at(1))
		},
		want: second,
	},
	"the later of two at the same time wins": {
		do: func(c *cache.Cache) {
			c.Set("a", first, nil, at(1))
			c.Set("a", second, nil, at(1))
		},
		want: second,
	},
	"an error hides the status": {
		do: func(c *cache.Cache) {
			c.Set("a", first, nil, at(1))
			c.Set("a", nil, errInspect, at(2))
		},
		err: errInspect,
	},
	"a status ends the error": {
		do: func(c *cache.Cache) {
			c.Set("a", nil, errInspect, at(1))
			c.Set("a", first, nil, at(2))
		},
		want: first,
	},
	"an older inspection than a touch is ignored": {
		do: func(c *cache.Cache) {
			c.Set("a", first, nil, at(1))
			c.Touch("a", at(3))
			c.Set("a", second, nil, at(2))
		},
		want: first,
	},
	"a gone pod has nothing but its UID": {
		do: func(c *cache.Cache) {
			c.Set("a", first, nil, at(1))
			c.Delete("a", at(2))
		},
		want: &pleg.PodStatus{UID: "a"},
	},
	"an older inspection does not bring a gone pod back": {
		do: func(c *cache.Cache) {
			c.Delete("a", at(2))
			c.Set("a", first, nil, at(1))
		},
		want: &pleg.PodStatus{UID: "a"},
	},
	"an older inspection does not bring a gone pod back after a list": {
		do: func(c *cache.Cache) {
			c.Delete("a", at(3))
			c.Observe(at(2), nil)
			c.Set("a", first, nil, at(1))
		},
		want: &pleg.PodStatus{UID: "a"},
	},
	"an older removal does not remove": {
		do: func(c *cache.Cache) {
			c.Set("a", second, nil, at(2))
			c.Delete("a", at(1))
		},
		want: second,
	},
	"a pod that came back stays over the next list": {
		do: func(c *cache.Cache) {
			c.Delete("a", at(1))
			c.Set("a", second, nil, at(2))
			c.Observe(at(3), nil)
		},
		want: second,
	},
	"a removal leaves other pods alone": {
		do: func(c *cache.Cache) {
			c.Set("a", first, nil, at(1))
			c.Delete("b", at(2))
			c.Observe(at(3), nil)
		},
		want: first,
	},
}

func TestGet(t *testing.T) {
	for name, tc := range getCases {
		t.Run(name, func(t *testing.T) {
			c := cache.New(time.Minute)
			tc.do(c)
			got, err := c.Get("a")
			if !errors.Is(err, tc.err) || (tc.err == nil && err != nil) {
				t.Fatalf("Get error = %v, want %v", err, tc.err)
			}
			if (got == nil) != (tc.want == nil) || got != nil && (got.UID != tc.want.UID || got.Name != tc.want.Name) {
				t.Errorf("Get = %+v, want %+v", got, tc.want)
			}
		})
	}
}
