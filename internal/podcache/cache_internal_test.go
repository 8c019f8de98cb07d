package podcache

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The cache keeps nothing of a caller that has given up, and nothing of a pod once a listing has
// shown that it is gone.
func TestNothingIsKept(t *testing.T) {
	c := New()
	now := time.Unix(1_700_000_000, 0)
	errStop := errors.New("the test stops the call")
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	for range 10 {
		if _, err := c.GetNewerThan(stopped, "waited-for", now); !errors.Is(err, errStop) {
			t.Errorf("GetNewerThan = %v, want the cause of its context", err)
		}
	}
	if len(c.waiters) > 0 {
		t.Errorf("waiters of %d pods are left of callers that have given up, want none", len(c.waiters))
	}
	c.Touch("never-there", now)
	c.Delete("removed", now)
	c.Delete("removed later", now.Add(2*time.Second))
	if len(c.entries) != 3 {
		t.Errorf("%d entries before the listing, want 3", len(c.entries))
	}
	c.Observe(now.Add(time.Second), nil)
	if len(c.entries) != 1 {
		t.Errorf("%d entries after a listing that began before one was found gone, want 1", len(c.entries))
	}
	c.Observe(now.Add(3*time.Second), nil)
	if len(c.entries)+len(c.gone) > 0 {
		t.Errorf("%d entries and %d gone pods are left after the listing, want none", len(c.entries), len(c.gone))
	}
}
