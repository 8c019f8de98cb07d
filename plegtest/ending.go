package plegtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// soon is how long a call may take whose context has ended.
const soon = 10 * time.Second

// endedContext makes each call with a context that has ended, and with contexts that end during the call.
func (c *check) endedContext(pods []*pleg.Pod) {
	c.Helper()
	pod := pods[slices.IndexFunc(pods, func(p *pleg.Pod) bool { return len(p.Containers)+len(p.Sandboxes) > 0 })]
	calls := map[string]func(context.Context) (string, error){
		"ListPods": func(ctx context.Context) (string, error) {
			all, err := c.rt.ListPods(ctx)
			return strings.Join(sorted(all), "\n"), err
		},
		"PodStatus": func(ctx context.Context) (string, error) {
			status, err := c.rt.PodStatus(ctx, pod, nil)
			if err != nil || status == nil || slices.Contains(status.Containers, nil) || slices.Contains(status.Sandboxes, nil) {
				return "", err
			}
			return fmt.Sprint(idsOf(status)), nil
		},
	}
	if lister, ok := c.rt.(pleg.PodLister); ok {
		calls["ListPod"] = func(ctx context.Context) (string, error) {
			one, err := lister.ListPod(ctx, pod.UID)
			return snapshot(one), err
		}
	}
	for method, call := range calls {
		whole, err := call(c.ctx)
		if err != nil {
			continue // reported before
		}
		// The context ends when the runtime looks at it, so that it ends during the call.
		for looks := range maxLooks {
			ctx, end := newEnding(c.ctx, looks)
			returned := c.returns(method, func() string {
				if got, err := call(ctx); err == nil && got != whole {
					return fmt.Sprintf("its context ended, and it returned a part of the answer and no error: %s, not %s", got, whole)
				}
				return ""
			})
			end()
			if !returned {
				break
			}
		}
	}
	if watcher, ok := c.rt.(pleg.EventWatcher); ok {
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		c.returns("WatchEvents", func() string {
			if err := watcher.WatchEvents(ctx, func() {}, func(pleg.Hint) {}); err == nil {
				return "it returned no error"
			}
			return ""
		})
	}
}

// returns reports whether a call returns soon if its context has ended, or ends at once. The call
// returns its problem as a text, "" if there is none.
func (c *check) returns(method string, call func() (wrong string)) bool {
	c.Helper()
	ended := make(chan string, 1)
	go func() { ended <- call() }()
	select {
	case wrong := <-ended:
		if wrong != "" {
			c.Errorf("%s: %s", method, wrong)
		}
		return wrong == ""
	case <-time.After(soon):
		c.Errorf("%s: it did not return within %v after its context had ended", method, soon)
		return false
	}
}

// maxLooks is the number of contexts for each call: the first has ended, the others end when they are
// looked at for the first, the second time and so on.
const maxLooks = 6

// ending is a context that ends when it is looked at for the last of a number of times, or a moment after
// it was first looked at.
type ending struct {
	context.Context //nolint:containedctx // it is a context
	left            atomic.Int32
	end             func()
}

// endSoon is long for a call that reads its memory.
const endSoon = 10 * time.Millisecond

func newEnding(parent context.Context, looks int) (*ending, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	e := &ending{Context: ctx, end: cancel}
	e.left.Store(int32(looks))
	if looks == 0 {
		cancel()
	}
	timer := time.AfterFunc(endSoon, cancel)
	return e, func() { timer.Stop(); cancel() }
}

// Err implements [context.Context].
func (e *ending) Err() error { e.look(); return e.Context.Err() }

// Done implements [context.Context].
func (e *ending) Done() <-chan struct{} { e.look(); return e.Context.Done() }

func (e *ending) look() {
	if e.left.Add(-1) == 0 {
		e.end()
	}
}
