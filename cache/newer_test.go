package cache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// answer is what GetNewerThan returned.
type answer struct {
	status *pleg.PodStatus
	err    error
}

func ask(ctx context.Context, c *cache.Cache, uid pleg.PodUID, t time.Time) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		s, err := c.GetNewerThan(ctx, uid, t)
		answers <- answer{s, err}
	}()
	return answers
}

func answered(answers <-chan answer) bool {
	synctest.Wait()
	return len(answers) > 0
}

// In each case GetNewerThan waits for pod a newer than at(2) after before has changed the
// cache, and must return at the last of the steps, not earlier.
func TestGetNewerThan(t *testing.T) {
	type step = func(c *cache.Cache)
	set := func(n int) step { return func(c *cache.Cache) { c.Set("a", status("a", "set"), nil, at(n)) } }
	fail := func(n int) step { return func(c *cache.Cache) { c.Set("a", nil, errInspect, at(n)) } }
	gone := func(n int) step { return func(c *cache.Cache) { c.Delete("a", at(n)) } }
	touch := func(n int) step { return func(c *cache.Cache) { c.Touch("a", at(n)) } }
	other := func(n int) step { return func(c *cache.Cache) { c.Set("b", status("b", "set"), nil, at(n)) } }
	list := func(n int, pending ...pleg.PodUID) step { return func(c *cache.Cache) { c.Observe(at(n), pending) } }

	for name, tc := range map[string]struct {
		before []step
		steps  []step
		err    error
	}{
		"already set":                             {before: []step{set(3)}},
		"already covered by a list":               {before: []step{list(3)}},
		"already found gone":                      {before: []step{gone(3)}},
		"already an error":                        {before: []step{fail(3)}, err: errInspect},
		"already found gone, after the list":      {before: []step{set(1), gone(3), list(2)}},
		"set later":                               {before: []step{set(1)}, steps: []step{set(3)}},
		"the same time is not newer":              {before: []step{set(2)}, steps: []step{set(2), list(2), touch(2), set(3)}},
		"a list":                                  {before: []step{set(1)}, steps: []step{list(2), list(3)}},
		"a list of an unknown pod":                {steps: []step{list(1), list(3)}},
		"another pod is no answer":                {steps: []step{other(3), set(3)}},
		"found gone":                              {before: []step{set(1)}, steps: []step{gone(3)}},
		"an error counts":                         {before: []step{set(1)}, steps: []step{fail(3)}, err: errInspect},
		"a pending pod is not covered":            {before: []step{set(1)}, steps: []step{list(3, "a"), set(3)}},
		"a pending pod's error covers it":         {before: []step{set(1)}, steps: []step{list(3, "a"), fail(3)}, err: errInspect},
		"a pending pod that is gone":              {before: []step{set(1)}, steps: []step{list(3, "a"), gone(3)}},
		"pending, answered too old":               {before: []step{set(1)}, steps: []step{list(3, "a"), set(2), touch(3)}},
		"pending, still in flight at the next":    {before: []step{set(1)}, steps: []step{list(3, "a"), list(4, "a"), set(3)}},
		"no longer pending at the next list":      {before: []step{set(1)}, steps: []step{list(3, "a"), list(4, "b")}},
		"pending before the question":             {before: []step{set(1), list(3, "a")}, steps: []step{touch(3)}},
		"pending, then gone, then forgotten":      {before: []step{gone(1), list(3, "a")}, steps: []step{touch(3)}},
		"an older touch":                          {before: []step{set(2)}, steps: []step{touch(1), touch(3)}},
		"a touch of a pod that is not in the way": {steps: []step{touch(2), list(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cache.New(time.Minute)
				for _, do := range tc.before {
					do(c)
				}
				answers := ask(t.Context(), c, "a", at(2))
				for i, do := range tc.steps {
					if answered(answers) {
						t.Fatalf("answered before step %d: %+v", i, <-answers)
					}
					do(c)
				}
				if !answered(answers) {
					t.Fatal("not answered after the last step")
				}
				if got := <-answers; !errors.Is(got.err, tc.err) || got.err == nil && got.status.UID != "a" {
					t.Errorf("GetNewerThan = %+v, %v, want pod a, %v", got.status, got.err, tc.err)
				}
			})
		})
	}
}

func TestGetNewerThanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(time.Minute)
		errEnough := errors.New("waited long enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended, stays := ask(ctx, c, "a", at(1)), ask(t.Context(), c, "a", at(1))
		cancel(errEnough)
		if !answered(ended) {
			t.Fatal("not ended with its context")
		}
		if got := <-ended; !errors.Is(got.err, errEnough) || got.status != nil {
			t.Errorf("GetNewerThan = %v, %v, want the cause of its context", got.status, got.err)
		}
		if answered(stays) {
			t.Fatalf("another waiter ended too: %+v", <-stays)
		}
		c.Set("a", status("a", "new"), nil, at(2))
		if got := <-stays; got.err != nil || got.status.Name != "new" {
			t.Errorf("GetNewerThan of the other waiter = %+v, %v", got.status, got.err)
		}
	})
}

func TestEachWaiterHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache.New(time.Minute)
		var waiters []<-chan answer
		for n := range 4 {
			waiters = append(waiters, ask(t.Context(), c, "a", at(n)))
		}
		for n := 1; n <= 4; n++ {
			c.Set("a", status("a", "new"), nil, at(n))
			for i, w := range waiters {
				if got, want := answered(w), i < n; got != want {
					t.Errorf("after the observation of %d: waiter for newer than %d answered = %v, want %v", n, i, got, want)
				}
			}
		}
	})
}
