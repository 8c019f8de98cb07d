package plegtest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// callTimeout is how long any other call may take.
const callTimeout = time.Minute

// CheckRuntime tests that a runtime follows the rules of [pleg.Runtime], and of [pleg.PodLister]
// and [pleg.EventWatcher] if it implements them:
//
//   - the UID of each pod is unique, and so is the id of each container and sandbox; a SandboxID is that of a
//     sandbox of the pod; all text is UTF-8; no time is before 1970 or after 2200;
//   - the calls may run at the same time, two of a kind too (test with -race);
//   - the calls are about the same pod: ListPod and PodStatus say of a pod what ListPods does, the states
//     too, and an id that the runtime does not know is left out of the status;
//   - PodStatus takes nothing from last that can have changed since;
//   - what was returned is not changed later, nor what was passed in;
//   - a call whose context has ended, or ends during the call, returns soon: an error, or all that it
//     returns otherwise.
//
// The runtime lists at least one pod with a container or a sandbox, and must not change meanwhile.
// CheckRuntime blocks until the calls have returned, for at most about a minute.
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
		return // the other calls are about the listed pods
	}
	pods = slices.Clone(pods) // the runtime may use its slice again
	was := snapshot(pods)
	for _, call := range c.calls(pods) {
		call("alone")
	}
	const together = "at the same time as others"
	var calls sync.WaitGroup
	for _, call := range slices.Concat(c.calls(pods), c.calls(pods)) {
		calls.Go(func() { call(together) })
	}
	calls.Wait()
	c.gone(pods)
	c.stale(pods)
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
			bad("two pods have the UID %q: list them as one pod", pod.UID)
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
		for _, container := range slices.Concat(pod.Containers, pod.Sandboxes) {
			if container != nil && absurd(container.CreatedAt) {
				bad("%q of pod %q was created at %v: leave a time zero if it is not known", container.ID, pod.UID, container.CreatedAt)
			}
		}
		for _, container := range pod.Containers {
			if container != nil && container.SandboxID != "" && !slices.ContainsFunc(pod.Sandboxes, func(s *pleg.Container) bool { return s != nil && s.ID == container.SandboxID }) {
				bad("%q of pod %q has the SandboxID %q, which no sandbox of the pod has", container.ID, pod.UID, container.SandboxID)
			}
		}
		if text := notUTF8(reflect.ValueOf(pod)); text != "" {
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
		} else if !slices.Equal(sorted(again), sorted(pods)) {
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
			case snapshot(one) != snapshot(pod):
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
		was, listed := snapshot(last), snapshot(pod)
		status, err := c.rt.PodStatus(c.ctx, pod, last)
		if now := snapshot(last); now != was {
			c.Errorf("PodStatus of %q %s: it changed the status that it had returned: %s, was %s", pod.UID, when, now, was)
		}
		if snapshot(pod) != listed || !c.statusOf(pod, status, err, when) { // CheckRuntime reports a changed pod
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
	if what := c.disagrees(pod, status); what != "" {
		return bad("%s", what)
	}
	for _, container := range status.Containers {
		for _, at := range []time.Time{container.CreatedAt, container.StartedAt, container.FinishedAt} {
			if absurd(at) {
				return bad("%q has the time %v: leave a time zero if it is not known", container.ID, at)
			}
		}
	}
	for _, sandbox := range status.Sandboxes {
		if absurd(sandbox.CreatedAt) {
			return bad("%q has the time %v: leave a time zero if it is not known", sandbox.ID, sandbox.CreatedAt)
		}
	}
	if text := notUTF8(reflect.ValueOf(status)); text != "" {
		return bad("%q is not UTF-8: use strings.ToValidUTF8", text)
	}
	return true
}

// absurd reports whether a time is set, and is one that no clock shows: long ago or far in the
// future.
func absurd(t time.Time) bool {
	return !t.IsZero() && (t.Year() > 2200 || t.Sub(time.Unix(0, 0)) < 24*time.Hour)
}

// disagrees says which state of a container or sandbox differs in the list and in the status; "" if none does,
// or if the pod has changed since it was listed.
func (c *check) disagrees(pod *pleg.Pod, status *pleg.PodStatus) (what string) {
	for _, listed := range pod.Containers {
		if s := status.Container(listed.ID); s != nil && s.State != listed.State {
			what = fmt.Sprintf("%q is %v in the status and %v in the list", listed.ID, s.State, listed.State)
		}
	}
	for _, listed := range pod.Sandboxes {
		if s := status.Sandbox(listed.ID); s != nil && s.Ready != (listed.State == pleg.StateRunning) {
			what = fmt.Sprintf("the sandbox %q is ready (%t) in the status and %v in the list", listed.ID, s.Ready, listed.State)
		}
	}
	if what == "" {
		return ""
	}
	again, err := c.rt.ListPods(c.ctx)
	same := func(p *pleg.Pod) bool { return snapshot(p) == snapshot(pod) }
	if err != nil || !slices.ContainsFunc(again, same) {
		return "" // another check is about that
	}
	return what
}

// stale inspects each pod with a last status that is older than the listed states: it must not be
// used.
func (c *check) stale(pods []*pleg.Pod) {
	c.Helper()
	const code = 113 // no container has this exit code
	for _, pod := range pods {
		want, err := c.rt.PodStatus(c.ctx, pod, nil)
		if err != nil || want == nil || slices.Contains(want.Containers, nil) || slices.Contains(want.Sandboxes, nil) {
			continue // reported before
		}
		last := *want
		last.Containers, last.Sandboxes = nil, nil
		for _, now := range want.Containers {
			before := *now
			before.State, before.ExitCode, before.Reason, before.Message, before.FinishedAt = pleg.StateRunning, code, "plegtest", "plegtest", time.Time{}
			if now.State == pleg.StateRunning {
				before.State, before.StartedAt = pleg.StateCreated, time.Time{}
			}
			other := before // of the same name, as after a restart
			other.ID, other.State = "plegtest-before-"+now.ID, pleg.StateExited
			last.Containers = append(last.Containers, &other, &before)
		}
		for _, now := range want.Sandboxes {
			before := *now
			before.Ready, before.IPs = !now.Ready, nil
			last.Sandboxes = append(last.Sandboxes, &before)
		}
		got, err := c.rt.PodStatus(c.ctx, pod, &last)
		if err != nil || got == nil || slices.Contains(got.Containers, nil) || slices.Contains(got.Sandboxes, nil) {
			c.Errorf("PodStatus of %q with an older last: %v", pod.UID, err)
			continue
		}
		for _, now := range want.Containers {
			s := got.Container(now.ID)
			if s == nil || s.State != now.State || !s.StartedAt.Equal(now.StartedAt) || !s.FinishedAt.Equal(now.FinishedAt) ||
				now.State == pleg.StateExited && (s.ExitCode != now.ExitCode || s.Reason != now.Reason) {
				c.Errorf("PodStatus of %q: for %q it returned the status in last, although the state or the id differs: take only what cannot have changed", pod.UID, now.ID)
			}
		}
		for _, now := range want.Sandboxes {
			if s := got.Sandbox(now.ID); s == nil || s.Ready != now.Ready || !slices.Equal(s.IPs, now.IPs) {
				c.Errorf("PodStatus of %q: for the sandbox %q it returned the status in last, although Ready differs: take only what cannot have changed", pod.UID, now.ID)
			}
		}
	}
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
