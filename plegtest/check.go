package plegtest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// callTimeout is how long any other call may take.
const callTimeout = time.Minute

// soon is how long a call may take whose context has ended.
const soon = 10 * time.Second

// CheckRuntime tests that a runtime keeps what [pleg.Runtime], and as far as it implements them
// [pleg.PodLister] and [pleg.EventWatcher], ask for:
//
//   - the UID of each pod is unique, and so is the id of each container and sandbox; all text is
//     UTF-8;
//   - the calls may run at the same time (test with -race);
//   - the calls are about the same pod: ListPod and PodStatus say of a pod what ListPods does,
//     and an id that the runtime does not know is left out of the status;
//   - what was returned is not changed later, nor what was passed in;
//   - a call whose context has ended returns an error, and soon.
//
// The runtime lists at least one pod with a container or a sandbox, and must not change meanwhile.
func CheckRuntime(t testing.TB, rt pleg.Runtime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	c := &check{TB: t, rt: rt, ctx: ctx}
	pods, err := rt.ListPods(ctx)
	if err != nil {
		t.Errorf("ListPods: %v", err)
		return
	}
	if !c.list(pods) {
		return // the other calls are about what the list shows
	}
	was := snapshot(pods)
	for _, again := range []string{"alone", "at the same time as others"} {
		calls := c.calls(pods)
		if again == "alone" {
			for _, call := range calls {
				call(again)
			}
			continue
		}
		ended := make(chan struct{})
		for _, call := range calls {
			go func() {
				defer func() { ended <- struct{}{} }()
				call(again)
			}()
		}
		for range calls {
			<-ended
		}
	}
	c.gone(pods)
	c.endedContext(pods)
	if now := snapshot(pods); now != was {
		t.Errorf("a pod was changed after ListPods had returned it: return a new pod, as the pipeline compares them:\n%s\nwas\n%s", now, was)
	}
}

type check struct {
	testing.TB
	rt  pleg.Runtime
	ctx context.Context //nolint:containedctx // lives as long as one call of CheckRuntime
}

// list reports whether the list is well formed.
func (c *check) list(pods []*pleg.Pod) bool {
	c.Helper()
	uids, ids, good := map[pleg.PodUID]bool{}, map[pleg.ContainerID]pleg.PodUID{}, true
	bad := func(format string, args ...any) { c.Helper(); c.Errorf("ListPods: "+format, args...); good = false }
	for _, pod := range pods {
		switch {
		case pod == nil:
			bad("a pod is nil")
			continue
		case pod.UID == "":
			bad("pod %s/%s has no UID", pod.Namespace, pod.Name)
		case uids[pod.UID]:
			bad("two pods have the UID %q: make one of them", pod.UID)
		}
		uids[pod.UID] = true
		for _, container := range slices.Concat(pod.Containers, pod.Sandboxes) {
			if container == nil {
				bad("a container or sandbox of pod %q is nil", pod.UID)
				continue
			}
			if container.ID == "" {
				bad("container %q of pod %q has no ID", container.Name, pod.UID)
			} else if other, twice := ids[container.ID]; twice {
				bad("the id %q is in the list twice: of pod %q and of pod %q", container.ID, other, pod.UID)
			}
			ids[container.ID] = pod.UID
		}
		if text := notUTF8(reflect.ValueOf(withoutNative(pod))); text != "" {
			bad("%q of pod %q is not UTF-8: use strings.ToValidUTF8", text, pod.UID)
		}
	}
	if len(ids) == 0 && good {
		bad("no pod has a container or a sandbox: give the runtime one to check")
	}
	return good
}

// calls returns one call of each method for each pod.
func (c *check) calls(pods []*pleg.Pod) (calls []func(when string)) {
	call := func(f func(when string)) { calls = append(calls, f) }
	call(func(when string) {
		c.Helper()
		again, err := c.rt.ListPods(c.ctx)
		if err != nil {
			c.Errorf("ListPods %s: %v", when, err)
		} else if slices.Contains(again, nil) || !slices.Equal(sorted(again), sorted(pods)) {
			c.Errorf("ListPods %s: it returned other pods than before: %s, before %s", when, snapshot(again), snapshot(pods))
		}
	})
	for _, pod := range pods {
		call(func(when string) {
			c.Helper()
			c.status(pod, when)
		})
		lister, ok := c.rt.(pleg.PodLister)
		if !ok {
			continue
		}
		call(func(when string) {
			c.Helper()
			one, err := lister.ListPod(c.ctx, pod.UID)
			switch {
			case err != nil:
				c.Errorf("ListPod of %q %s: %v", pod.UID, when, err)
			case one == nil || snapshot(one) != snapshot(pod):
				c.Errorf("ListPod of %q %s: it returned another pod than ListPods: %s, there %s", pod.UID, when, snapshot(one), snapshot(pod))
			}
		})
	}
	return calls
}

// status inspects a pod, and again with the status that came back.
func (c *check) status(pod *pleg.Pod, when string) {
	c.Helper()
	var last *pleg.PodStatus
	for range 2 {
		was := snapshot(last)
		status, err := c.rt.PodStatus(c.ctx, pod, last)
		if now := snapshot(last); now != was {
			c.Errorf("PodStatus of %q %s: it changed the status that it had returned: %s, was %s", pod.UID, when, now, was)
		}
		if !c.statusOf(pod, status, err, when) {
			return
		}
		last = status
	}
}

// statusOf reports whether a status is of the pod.
func (c *check) statusOf(pod *pleg.Pod, status *pleg.PodStatus, err error, when string) bool {
	c.Helper()
	bad := func(format string, args ...any) bool {
		c.Helper()
		c.Errorf("PodStatus of %q %s: "+format, append([]any{pod.UID, when}, args...)...)
		return false
	}
	switch {
	case err != nil:
		return bad("%v", err)
	case status == nil:
		return bad("it returned neither a status nor an error")
	case slices.Contains(status.Containers, nil) || slices.Contains(status.Sandboxes, nil):
		return bad("a container or sandbox of the status is nil")
	case cmp.Or(status.UID, pod.UID) != pod.UID || status.Name != pod.Name || status.Namespace != pod.Namespace:
		return bad("it returned the status of %s/%s (%s), not of %s/%s", status.Namespace, status.Name, status.UID, pod.Namespace, pod.Name)
	}
	got, listed := idsOf(status), idsOf(pod)
	if !slices.Equal(got, listed) {
		return bad("the status has the ids %q, the list has %q", got, listed)
	}
	text := *status
	text.Native = nil
	if text := notUTF8(reflect.ValueOf(text)); text != "" {
		return bad("%q is not UTF-8: use strings.ToValidUTF8", text)
	}
	return true
}

// gone asks for a pod and for containers that were removed since the list.
func (c *check) gone(pods []*pleg.Pod) {
	c.Helper()
	if lister, ok := c.rt.(pleg.PodLister); ok {
		if pod, err := lister.ListPod(c.ctx, "plegtest-unknown"); pod != nil || err != nil {
			c.Errorf("ListPod of a pod that is gone: it returned %v, %v, not nil and no error", pod, err)
		}
	}
	for _, pod := range pods {
		more := *pod
		more.Containers = append(slices.Clone(pod.Containers), &pleg.Container{ID: "plegtest-unknown", Name: "plegtest-unknown", State: pleg.StateRunning})
		if _, err := c.rt.PodStatus(c.ctx, &more, nil); err != nil {
			c.Errorf("PodStatus of %q with an id that the runtime does not know: %v: leave the id out of the status", pod.UID, err)
		}
	}
}

// endedContext makes each call with a context that has ended.
func (c *check) endedContext(pods []*pleg.Pod) {
	c.Helper()
	calls := map[string]func(context.Context) error{
		"ListPods":  func(ctx context.Context) error { _, err := c.rt.ListPods(ctx); return err },
		"PodStatus": func(ctx context.Context) error { _, err := c.rt.PodStatus(ctx, pods[0], nil); return err },
	}
	if lister, ok := c.rt.(pleg.PodLister); ok {
		calls["ListPod"] = func(ctx context.Context) error { _, err := lister.ListPod(ctx, pods[0].UID); return err }
	}
	if watcher, ok := c.rt.(pleg.EventWatcher); ok {
		calls["WatchEvents"] = func(ctx context.Context) error { return watcher.WatchEvents(ctx, func() {}, func(pleg.Hint) {}) }
	}
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	for method, call := range calls {
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if err == nil {
				c.Errorf("%s: it returned no error although its context had ended: pass ctx on, or begin with ctx.Err", method)
			}
		case <-time.After(soon):
			c.Errorf("%s: it did not return within %v after its context had ended", method, soon)
		}
	}
}
