package podcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// answer is the result of a GetNewerThan call in a goroutine.
type answer struct {
	status *pleg.PodStatus
	err    error
}

func getNewerThan(ctx context.Context, c *podcache.Cache, uid pleg.PodUID, t time.Time) <-chan answer {
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

func setOther(c *podcache.Cache) { c.Set("b", status("b", "set"), nil, at(3)) }

// newerCases call GetNewerThan of pod a and at(2), between before and steps. The
// last step must end the call.
var newerCases = map[string]struct {
	before []step
	steps  []step
	err    error
}{
	"already set":                        {before: []step{set(3)}},
	"an older touch takes nothing back":  {before: []step{set(3), touch(1)}},
	"already covered by a list":          {before: []step{list(3)}, err: pleg.ErrUnknownPod},
	"already removed":                    {before: []step{remove(3)}, err: pleg.ErrUnknownPod},
	"already an error":                   {before: []step{fail(3)}, err: errInspect},
	"already removed, after the list":    {before: []step{set(1), remove(3), list(2)}, err: pleg.ErrUnknownPod},
	"removed twice before the list":      {before: []step{remove(1), remove(2), list(3)}, err: pleg.ErrUnknownPod},
	"set later":                          {before: []step{set(1)}, steps: []step{set(3)}},
	"the same time is not newer":         {before: []step{set(2)}, steps: []step{set(2), list(2), touch(2), set(3)}},
	"a list":                             {before: []step{set(1)}, steps: []step{list(2), list(3)}},
	"a list of an unknown pod":           {steps: []step{list(1), list(3)}, err: pleg.ErrUnknownPod},
	"another pod is ignored":             {steps: []step{setOther, set(3)}},
	"removed":                            {before: []step{set(1)}, steps: []step{remove(3)}, err: pleg.ErrUnknownPod},
	"an error":                           {before: []step{set(1)}, steps: []step{fail(3)}, err: errInspect},
	"a pending pod is not covered":       {before: []step{set(1)}, steps: []step{list(3, "a"), set(3)}},
	"a pending pod's error covers it":    {before: []step{set(1)}, steps: []step{list(3, "a"), fail(3)}, err: errInspect},
	"a pending pod that is removed":      {before: []step{set(1)}, steps: []step{list(3, "a"), remove(3)}, err: pleg.ErrUnknownPod},
	"pending, inspection is too old":     {before: []step{set(1)}, steps: []step{list(3, "a"), set(2), touch(3)}},
	"pending, also at the next list":     {before: []step{set(1)}, steps: []step{list(3, "a"), list(4, "a"), set(3)}},
	"no longer pending at the next list": {before: []step{set(1)}, steps: []step{list(3, "a"), list(4, "b")}},
	"pending before the call":            {before: []step{set(1), list(3, "a")}, steps: []step{touch(3)}},
	"removed, then pending":              {before: []step{remove(1), list(3, "a")}, steps: []step{touch(3)}, err: pleg.ErrUnknownPod},
	"an older touch":                     {before: []step{set(2)}, steps: []step{touch(1), touch(3)}},
	"a touch of an unknown pod":          {steps: []step{touch(2), list(3)}, err: pleg.ErrUnknownPod},
}

func TestGetNewerThan(t *testing.T) {
	for name, tc := range newerCases {
		kit.Bubble(t, name, func(t *testing.T) {
			c := after(tc.before...)
			answers := getNewerThan(t.Context(), c, "a", at(2))
			for i, do := range tc.steps {
				if answered(answers) {
					t.Fatalf("ended before step %d: %+v", i, <-answers)
				}
				do(c)
			}
			if !answered(answers) {
				t.Fatal("not ended by the last step")
			}
			if got := <-answers; !errors.Is(got.err, tc.err) || got.err == nil && got.status.UID != "a" {
				t.Errorf("GetNewerThan = %+v, %v, want pod a, %v", got.status, got.err, tc.err)
			}
		})
	}
}

func TestGetNewerThanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podcache.New()
		errStop := errors.New("the test stops the call")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended, waits := getNewerThan(ctx, c, "a", at(1)), getNewerThan(t.Context(), c, "a", at(1))
		cancel(errStop)
		if !answered(ended) {
			t.Fatal("not ended with its context")
		}
		if got := <-ended; !errors.Is(got.err, errStop) || got.status != nil {
			t.Errorf("GetNewerThan = %v, %v, want the cause of its context", got.status, got.err)
		}
		if answered(waits) {
			t.Fatalf("another call ended too: %+v", <-waits)
		}
		c.Set("a", status("a", "new"), nil, at(2))
		if got := <-waits; got.err != nil || got.status.Name != "new" {
			t.Errorf("GetNewerThan of the other call = %+v, %v", got.status, got.err)
		}
	})
}

func TestEachCallHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podcache.New()
		var calls []<-chan answer
		for n := range 4 {
			calls = append(calls, getNewerThan(t.Context(), c, "a", at(n)))
		}
		for n := 1; n <= 4; n++ {
			c.Set("a", status("a", "new"), nil, at(n))
			for i, w := range calls {
				if got, want := answered(w), i < n; got != want {
					t.Errorf("after the observation at %d: call for newer than %d ended = %v, want %v", n, i, got, want)
				}
			}
		}
	})
}

func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := podcache.New()
		waits := getNewerThan(t.Context(), c, "a", at(1))
		c.Close()
		if !answered(waits) {
			t.Fatal("not ended with the cache")
		}
		if got := <-waits; !errors.Is(got.err, pleg.ErrStopped) {
			t.Errorf("GetNewerThan = %+v, %v, want %v", got.status, got.err, pleg.ErrStopped)
		}
		c.Set("a", status("a", "last"), nil, at(2))
		if got, err := c.GetNewerThan(t.Context(), "a", at(1)); err != nil || got.Name != "last" {
			t.Errorf("GetNewerThan of what is known = %+v, %v", got, err)
		}
	})
}
