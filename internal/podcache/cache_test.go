package podcache_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInspect = errors.New("inspection failed")

// at returns the time of the nth observation.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// status returns a status that the test recognizes by its name.
func status(uid pleg.PodUID, name string) *pleg.PodStatus {
	return &pleg.PodStatus{UID: uid, Name: name}
}

// step is a call that changes the cache, mostly for pod a at(n).
type step func(c *podcache.Cache)

func after(steps ...step) *podcache.Cache {
	c := podcache.New()
	for _, do := range steps {
		do(c)
	}
	return c
}

func setNamed(name string, n int) step {
	return func(c *podcache.Cache) { c.Set("a", status("a", name), nil, at(n)) }
}

func set(n int) step    { return setNamed("set", n) }
func fail(n int) step   { return func(c *podcache.Cache) { c.Set("a", nil, errInspect, at(n)) } }
func remove(n int) step { return func(c *podcache.Cache) { c.Delete("a", at(n)) } }
func touch(n int) step  { return func(c *podcache.Cache) { c.Touch("a", at(n)) } }

func list(n int, pending ...pleg.PodUID) step {
	return func(c *podcache.Cache) { c.Observe(at(n), listed(pending...)) }
}

// listed returns pods as a listing has them.
func listed(uids ...pleg.PodUID) []*pleg.Pod {
	pods := make([]*pleg.Pod, len(uids))
	for n, uid := range uids {
		pods[n] = &pleg.Pod{UID: uid, Namespace: "shop", Name: string(uid)}
	}
	return pods
}

// getCases want the status of that name, or the error.
func synced(c *podcache.Cache) { c.MarkSynced() }

var getCases = map[string]struct {
	steps []step
	want  string
	err   error
}{
	"listed, its first inspection has not ended":              {steps: []step{list(1, "a")}, err: pleg.ErrNotSynced},
	"before the first list":                                   {err: pleg.ErrNotSynced},
	"its first inspection has not ended after the first list": {steps: []step{synced, list(1, "a")}, err: pleg.ErrUnknownPod},
	"unknown pod":                              {steps: []step{synced}, err: pleg.ErrUnknownPod},
	"listed and never inspected":               {steps: []step{list(1)}, err: pleg.ErrUnknownPod},
	"inspected":                                {steps: []step{setNamed("first", 1)}, want: "first"},
	"newer inspection wins":                    {steps: []step{setNamed("first", 1), setNamed("second", 2)}, want: "second"},
	"older inspection is ignored":              {steps: []step{setNamed("second", 2), setNamed("first", 1)}, want: "second"},
	"the later of two at the same time wins":   {steps: []step{setNamed("first", 1), setNamed("second", 1)}, want: "second"},
	"error hides the status":                   {steps: []step{setNamed("first", 1), fail(2)}, err: errInspect},
	"status replaces the error":                {steps: []step{fail(1), setNamed("first", 2)}, want: "first"},
	"inspection older than a touch is ignored": {steps: []step{setNamed("first", 1), touch(3), setNamed("second", 2)}, want: "first"},
	"removed":                              {steps: []step{setNamed("first", 1), remove(2)}, err: pleg.ErrUnknownPod},
	"removed, older inspection is ignored": {steps: []step{remove(2), setNamed("first", 1)}, err: pleg.ErrUnknownPod},
	"removed, listed, older inspection":    {steps: []step{remove(3), list(2), setNamed("first", 1)}, err: pleg.ErrUnknownPod},
	"older removal is ignored":             {steps: []step{setNamed("second", 2), remove(1)}, want: "second"},
	"removed and back":                     {steps: []step{remove(1), setNamed("second", 2), list(3)}, want: "second"},
	"another pod is removed": {
		steps: []step{setNamed("first", 1), func(c *podcache.Cache) { c.Delete("b", at(2)) }, list(3)}, want: "first",
	},
}

func TestGet(t *testing.T) {
	for name, tc := range getCases {
		t.Run(name, func(t *testing.T) {
			got, err := after(tc.steps...).Get("a")
			if !errors.Is(err, tc.err) || (tc.err == nil && err != nil) {
				t.Fatalf("Get error = %v, want %v", err, tc.err)
			}
			if (got == nil) != (tc.err != nil) || got != nil && (got.UID != "a" || got.Name != tc.want) {
				t.Errorf("Get = %+v, want the status %q", got, tc.want)
			}
		})
	}
}
