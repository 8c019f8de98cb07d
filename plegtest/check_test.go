package plegtest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func good() *plegtest.Runtime {
	r := plegtest.New()
	r.Set("web", "nginx=running job=exited:0 /w=running")
	r.Set("db", "postgres=running /d=running")
	return r
}

func TestCheckRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plegtest.CheckRuntime(t, good())
		plegtest.CheckRuntime(t, good().Basic())
		plegtest.CheckRuntime(t, answering(func(s *pleg.PodStatus) { s.UID = "" })) // the pipeline knows it
		for _, at := range []time.Time{time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2200, 12, 31, 0, 0, 0, 0, time.UTC)} {
			plegtest.CheckRuntime(t, answering(func(s *pleg.PodStatus) { s.Containers[0].CreatedAt, s.Sandboxes[0].CreatedAt = at, at }))
		}
		slow := good()
		slow.SetListFault(plegtest.Delay(time.Second))
		slow.SetInspectFault(plegtest.Delay(time.Second))
		began := time.Now()
		plegtest.CheckRuntime(t, slow)
		if took := time.Since(began); took > 21*time.Second {
			t.Errorf("the check of a runtime whose calls take a second took %v, want 20 s, as each look is ended soon", took)
		}
		plegtest.CheckRuntime(t, broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if last != nil {
				last.Native = new(int) // it belongs to the runtime
			}
			return s, ctx.Err()
		}})
		memory := good()
		plegtest.CheckRuntime(t, broken{Runtime: memory, list: func(ctx context.Context, _ []*pleg.Pod) ([]*pleg.Pod, error) {
			return memory.ListPods(context.WithoutCancel(ctx)) // although its context has ended
		}})
		var calls atomic.Int32
		var first []*pleg.Pod
		plegtest.CheckRuntime(t, broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			switch calls.Add(1) {
			case 1:
				first = pods
			case 2:
				clear(first) // the runtime uses its slice again
			}
			for n, pod := range pods {
				again := *pod
				again.Native = new(chan int) // of each list
				pods[n] = &again
			}
			return pods, ctx.Err()
		}})
	})
}

// broken is a good runtime, except for one of its methods.
type broken struct {
	*plegtest.Runtime
	list   func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error)
	one    func(ctx context.Context, pod *pleg.Pod) (*pleg.Pod, error)
	status func(ctx context.Context, pod *pleg.Pod, last, status *pleg.PodStatus) (*pleg.PodStatus, error)
	watch  func(ctx context.Context) error
}

func (b broken) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	pods, err := b.Runtime.ListPods(ctx)
	if b.list != nil {
		return b.list(ctx, pods)
	}
	return pods, err
}

func (b broken) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	pod, err := b.Runtime.ListPod(ctx, uid)
	if b.one != nil {
		return b.one(ctx, pod)
	}
	return pod, err
}

func (b broken) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	status, err := b.Runtime.PodStatus(ctx, pod, last)
	if b.status != nil {
		return b.status(ctx, pod, last, status)
	}
	return status, err
}

func (b broken) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	if b.watch != nil {
		return b.watch(ctx)
	}
	return b.Runtime.WatchEvents(ctx, opened, hint)
}

// listing returns a runtime that lists one more pod.
func listing(more *pleg.Pod) broken {
	r := good()
	if more == nil || more.UID != "web" && more.UID != "" {
		r.SetPod(&pleg.Pod{UID: "other"})
	}
	return broken{Runtime: r, list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
		return append(pods, more), ctx.Err()
	}}
}

// stale returns a runtime that takes something of a container from an older last.
func stale(take func(now, last *pleg.ContainerStatus)) broken {
	b := answering(nil)
	b.SetDetails(func(s *pleg.PodStatus) {
		for _, c := range s.Containers {
			if c.StartedAt = time.Unix(1e9, 0); c.State == pleg.StateExited {
				c.FinishedAt = time.Unix(2e9, 0)
			}
		}
	})
	b.status = func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
		if last == nil {
			return s, ctx.Err()
		}
		for _, old := range last.Containers {
			if now := s.Container(old.ID); now != nil {
				take(now, old)
			}
		}
		return s, ctx.Err()
	}
	return b
}

// older returns a runtime with another answer if last is not its own.
func older(answer func(s *pleg.PodStatus) (*pleg.PodStatus, error)) broken {
	return broken{Runtime: good(), status: func(ctx context.Context, pod *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
		if last != nil && len(last.Containers) > len(pod.Containers) {
			return answer(s)
		}
		return s, ctx.Err()
	}}
}

// answering returns a runtime that changes each status.
func answering(change func(s *pleg.PodStatus)) broken {
	return broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
		if s != nil {
			change(s)
		}
		return s, ctx.Err()
	}}
}

func TestCheckRuntimeFinds(t *testing.T) {
	errBusy := errors.New("busy")
	var calls atomic.Int32
	twoSandboxes := plegtest.New()
	twoSandboxes.Set("web", "nginx=running /w=running /old=exited")
	readiness := func(of pleg.ContainerID) broken {
		return broken{Runtime: twoSandboxes, status: func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if s != nil && last != nil && last.Sandbox(of) != nil {
				s.Sandbox(of).Ready = last.Sandbox(of).Ready
			}
			return s, ctx.Err()
		}}
	}
	empty := plegtest.New()
	empty.SetPod(&pleg.Pod{UID: "a"})
	withoutContainers := plegtest.New() // the first of two
	withoutContainers.SetPod(&pleg.Pod{UID: "a"})
	withoutContainers.Set("web", "nginx=running /w=running")
	ended := func(rt *plegtest.Runtime, answer func(*pleg.PodStatus) *pleg.PodStatus) broken {
		return broken{Runtime: rt, status: func(ctx context.Context, pod *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if ctx.Err() != nil {
				return answer(plegtest.Status(pod)), nil
			}
			return s, nil
		}}
	}
	moved := good()
	for name, tc := range map[string]struct {
		rt   pleg.Runtime
		want string
	}{
		"list that fails":                   {broken{Runtime: good(), list: func(context.Context, []*pleg.Pod) ([]*pleg.Pod, error) { return nil, errBusy }}, "ListPods: busy"},
		"list that hangs":                   {broken{Runtime: good(), list: func(ctx context.Context, _ []*pleg.Pod) ([]*pleg.Pod, error) { <-ctx.Done(); return nil, ctx.Err() }}, "ListPods: context deadline exceeded"},
		"no pods":                           {plegtest.New(), "ListPods: no pod has a container or a sandbox: give the runtime one to check"},
		"no containers":                     {empty, "ListPods: no pod has a container or a sandbox: give the runtime one to check"},
		"nil pod":                           {listing(nil), "ListPods: a pod is nil"},
		"nothing but a nil pod":             {broken{Runtime: good(), list: func(context.Context, []*pleg.Pod) ([]*pleg.Pod, error) { return []*pleg.Pod{nil}, nil }}, "ListPods: a pod is nil"},
		"nil sandbox":                       {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{{ID: "c", SandboxID: "s"}}, Sandboxes: []*pleg.Container{nil, {ID: "s"}}}), `ListPods: a container or sandbox of pod "u" is nil`},
		"no UID":                            {listing(&pleg.Pod{Name: "nameless", Namespace: "shop"}), "ListPods: pod shop/nameless has no UID"},
		"two pods of one UID":               {listing(&pleg.Pod{UID: "web"}), `ListPods: two pods have the UID "web": list them as one pod`},
		"nil container":                     {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{nil}}), `ListPods: a container or sandbox of pod "u" is nil`},
		"no id":                             {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{{Name: "c"}}}), `ListPods: container "c" of pod "u" has no ID`},
		"id twice in a pod":                 {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{{ID: "c"}}, Sandboxes: []*pleg.Container{{ID: "c"}}}), `ListPods: the id "c" is in the list twice: of pod "u" and of pod "u"`},
		"id in two pods":                    {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{{ID: "nginx"}}}), `ListPods: the id "nginx" is in the list twice: of pod "web" and of pod "u"`},
		"name that is not text":             {listing(&pleg.Pod{UID: "u", Name: "\xff"}), `ListPods: "\xff" of pod "u" is not UTF-8: use strings.ToValidUTF8`},
		"label that is not text":            {listing(&pleg.Pod{UID: "u", Labels: map[string]string{"a": "\xff", "b": "", "c": "", "d": "", "e": "", "f": "", "g": "", "h": ""}}), `ListPods: "\xff" of pod "u" is not UTF-8: use strings.ToValidUTF8`},
		"container's name that is not text": {listing(&pleg.Pod{UID: "u", Sandboxes: []*pleg.Container{{ID: "r"}, {ID: "s", Name: "\xff"}, {ID: "t"}}}), `ListPods: "\xff" of pod "u" is not UTF-8: use strings.ToValidUTF8`},
		"status that is not text":           {answering(func(s *pleg.PodStatus) { s.Sandboxes[0].Annotations = map[string]string{"\xff": ""} }), `PodStatus of A_POD WHEN: "\xff" is not UTF-8: use strings.ToValidUTF8`},
		"pods that change": {broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			if calls.Add(1) == 2 {
				pods[0].Containers[0].Attempt++
			}
			return pods, ctx.Err()
		}}, "a pod was changed after ListPods had returned it: return a new pod, as the pipeline compares them:\n[{…\"Attempt\":1…}]\nwas\n[{…\"Attempt\":0…}]"},
		"pod that PodStatus changes": {broken{Runtime: good(), status: func(ctx context.Context, pod *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if calls.Add(1) == 1 {
				pod.Containers[0].State = pleg.StateExited
			}
			return s, ctx.Err()
		}}, "a pod was changed after ListPods had returned it: return a new pod, as the pipeline compares them:\n[{…\"State\":3…\"State\":3…}]\nwas\n[{…\"State\":2…\"State\":3…}]"},
		"status that changes": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if last != nil && calls.Add(1) == 1 {
				last.IPs = nil
			}
			return s, ctx.Err()
		}}, `PodStatus of "web" alone: it changed the status that it had returned: {…"IPs":null…}, was {…"IPs":["10.0.0.1"]…}`},
		"one call at a time": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			defer calls.Add(-1)
			if calls.Add(1) > 1 {
				return nil, errBusy
			}
			time.Sleep(time.Second)
			return s, ctx.Err()
		}}, "PodStatus of A_POD at the same time as others: busy"},
		"another list": {broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			if calls.Add(1) > 1 && pods != nil {
				pods = pods[1:]
			}
			return pods, ctx.Err()
		}}, `ListPods WHEN: it returned other pods than before: [{"UID":"db"…}], before [{"UID":"db"…} {"UID":"web"…}]`},
		"ListPod of another pod": {broken{Runtime: good(), one: func(ctx context.Context, pod *pleg.Pod) (*pleg.Pod, error) {
			if pod != nil {
				pod = &pleg.Pod{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, Containers: pod.Containers}
			}
			return pod, ctx.Err()
		}}, `ListPod of A_POD WHEN: it returned another pod than ListPods: {…"Sandboxes":null…}, there {…"Sandboxes":[{…}`},
		"ListPod that fails": {broken{Runtime: good(), one: func(ctx context.Context, pod *pleg.Pod) (*pleg.Pod, error) {
			if pod != nil {
				return nil, errBusy
			}
			return nil, ctx.Err()
		}}, "ListPod of A_POD WHEN: busy"},
		"ListPod of nothing": {broken{Runtime: good(), one: func(ctx context.Context, _ *pleg.Pod) (*pleg.Pod, error) {
			return nil, ctx.Err()
		}}, "ListPod of A_POD WHEN: it returned another pod than ListPods: null, there {…}"},
		"ListPod of a pod that is gone": {broken{Runtime: good(), one: func(ctx context.Context, pod *pleg.Pod) (*pleg.Pod, error) {
			if pod == nil && ctx.Err() == nil {
				return &pleg.Pod{UID: "ghost"}, nil
			}
			return pod, ctx.Err()
		}}, "ListPod of a pod that is gone: it returned &{ghost …}, <nil>, not nil and no error"},
		"ListPod that fails for a pod that is gone": {broken{Runtime: good(), one: func(ctx context.Context, pod *pleg.Pod) (*pleg.Pod, error) {
			if pod == nil {
				return nil, errBusy
			}
			return pod, ctx.Err()
		}}, "ListPod of a pod that is gone: it returned <nil>, busy, not nil and no error"},
		"status of another pod":  {answering(func(s *pleg.PodStatus) { s.UID = "another" }), "PodStatus of A_POD WHEN: it returned the status of ns/name-… (another), not of ns/name-…"},
		"status of another name": {answering(func(s *pleg.PodStatus) { s.Name = "another" }), "PodStatus of A_POD WHEN: it returned the status of ns/another (…), not of ns/name-…"},
		"another namespace":      {answering(func(s *pleg.PodStatus) { s.Namespace = "another" }), "PodStatus of A_POD WHEN: it returned the status of another/name-…), not of ns/name-…"},
		"second pod's status of a runtime that lists none alone": {struct{ pleg.Runtime }{answering(func(s *pleg.PodStatus) {
			if s.UID == "db" {
				s.Name = "another"
			}
		})}, `PodStatus of "db" WHEN: it returned the status of ns/another (db), not of ns/name-db`},
		"status of another id":       {answering(func(s *pleg.PodStatus) { s.Sandboxes[0].ID = "another" }), `PodStatus of A_POD WHEN: the status has the ids ["another" …], the list has […]`},
		"status without a container": {answering(func(s *pleg.PodStatus) { s.Containers = nil }), `PodStatus of A_POD WHEN: the status has the ids [AN_ID], the list has ["…" "…"]`},
		"nil in a status":            {answering(func(s *pleg.PodStatus) { s.Containers[0] = nil }), "PodStatus of A_POD WHEN: a container or sandbox of the status is nil"},
		"nil sandbox in a status":    {answering(func(s *pleg.PodStatus) { s.Sandboxes[0] = nil }), "PodStatus of A_POD WHEN: a container or sandbox of the status is nil"},
		"neither a status nor an error": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, _, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			return nil, ctx.Err()
		}}, "PodStatus of A_POD WHEN: it returned neither a status nor an error"},
		"unknown id is an error": {broken{Runtime: good(), status: func(ctx context.Context, pod *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			for _, c := range pod.Containers {
				if c.ID == "plegtest-unknown" {
					return nil, errBusy
				}
			}
			return s, ctx.Err()
		}}, `PodStatus of A_POD with an id that the runtime does not know: busy: leave the id out of the status`},
		"part of a list when the context has ended": {broken{Runtime: good(), list: func(_ context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			return pods, nil
		}}, "ListPods: its context ended, and it returned a part of the answer and no error: , not {\"UID\":\"db\"…}\n{\"UID\":\"web\"…}"},
		"part of a list when the context ends": {broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			if err := ctx.Err(); len(pods) == 0 {
				return nil, err
			}
			for n := range pods {
				if ctx.Err() != nil {
					return pods[:n], nil
				}
			}
			return pods, nil
		}}, "ListPods: its context ended, and it returned a part of the answer and no error: , not {\"UID\":\"db\"…}\n{\"UID\":\"web\"…}"},
		"part of a list when the context ends later": {broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			for range 3 { // after the look of the good runtime
				if err := ctx.Err(); err != nil {
					return nil, err
				}
			}
			if ctx.Err() != nil {
				return pods[1:], nil
			}
			return pods, nil
		}}, `ListPods: its context ended, and it returned a part of the answer and no error: {"UID":"db"…}, not {…}`},
		"part of a list when the channel of the context is closed": {broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			select {
			case <-ctx.Done():
				if pods != nil {
					return pods[:1], nil
				}
				return nil, ctx.Err()
			default:
				return pods, nil
			}
		}}, `ListPods: its context ended, and it returned a part of the answer and no error: {"UID":"web"…}, not {…}`},
		"part of a status when the context has ended": {ended(withoutContainers, func(s *pleg.PodStatus) *pleg.PodStatus { s.Containers = nil; return s }), "PodStatus: its context ended, and it returned a part of the answer and no error: [w], not [nginx w]"},
		"no status when the context has ended":        {ended(good(), func(*pleg.PodStatus) *pleg.PodStatus { return nil }), "PodStatus: its context ended, and it returned a part of the answer and no error: , not [job nginx w]"},
		"nil container when the context has ended":    {ended(good(), func(s *pleg.PodStatus) *pleg.PodStatus { s.Containers[0] = nil; return s }), "PodStatus: its context ended, and it returned a part of the answer and no error: , not [job nginx w]"},
		"nil sandbox when the context has ended":      {ended(good(), func(s *pleg.PodStatus) *pleg.PodStatus { s.Sandboxes[0] = nil; return s }), "PodStatus: its context ended, and it returned a part of the answer and no error: , not [job nginx w]"},
		"pods that change meanwhile": {struct{ pleg.Runtime }{broken{Runtime: moved, list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			if calls.Add(1) == 1 {
				moved.Set("web", "nginx=exited job=exited:0 /w=exited")
			}
			return pods, ctx.Err()
		}, status: func(ctx context.Context, pod *pleg.Pod, _, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			now, err := moved.ListPod(ctx, pod.UID)
			if err != nil {
				return nil, err
			}
			return moved.PodStatus(ctx, now, nil)
		}}}, `ListPods WHEN: it returned other pods than before: [{…{"UID":"web"…"State":3…}], before [{…{"UID":"web"…"State":2…}]`}, // and not that the status disagrees with the list
		"nothing of a pod when the context has ended": {broken{Runtime: good(), one: func(_ context.Context, pod *pleg.Pod) (*pleg.Pod, error) {
			return pod, nil
		}}, "ListPod: its context ended, and it returned a part of the answer and no error: null, not {…}"},
		"two lists at once": {broken{Runtime: good(), list: func(ctx context.Context, pods []*pleg.Pod) ([]*pleg.Pod, error) {
			defer calls.Add(-1)
			if calls.Add(1) > 1 && ctx.Err() == nil {
				return nil, errBusy
			}
			time.Sleep(time.Millisecond)
			return pods, ctx.Err()
		}}, "ListPods at the same time as others: busy"},
		"state of another time":   {answering(func(s *pleg.PodStatus) { s.Containers[0].State = pleg.StateCreated }), `PodStatus of A_POD WHEN: AN_ID is created in the status and running in the list`},
		"sandbox of another time": {answering(func(s *pleg.PodStatus) { s.Sandboxes[0].Ready = false }), `PodStatus of A_POD WHEN: the sandbox AN_ID is ready (false) in the status and running in the list`},
		"sandbox of a later time": {broken{Runtime: twoSandboxes, status: func(ctx context.Context, _ *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if s != nil {
				s.Sandbox("old").Ready = true
			}
			return s, ctx.Err()
		}}, `PodStatus of "web" WHEN: the sandbox "old" is ready (true) in the status and exited in the list`},
		"state of a stale last":     {stale(func(now, last *pleg.ContainerStatus) { now.State = last.State }), `PodStatus of A_POD: for AN_ID it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"start of a stale last":     {stale(func(now, last *pleg.ContainerStatus) { now.StartedAt = last.StartedAt }), `PodStatus of A_POD: for AN_ID it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"end of a stale last":       {stale(func(now, last *pleg.ContainerStatus) { now.FinishedAt = last.FinishedAt }), `PodStatus of "web": for "job" it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"exit code of a stale last": {stale(func(now, last *pleg.ContainerStatus) { now.ExitCode = last.ExitCode }), `PodStatus of "web": for "job" it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"reason of a stale last":    {stale(func(now, last *pleg.ContainerStatus) { now.Reason = last.Reason }), `PodStatus of "web": for "job" it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"readiness of a stale last": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if s != nil && last != nil {
				s.Sandboxes[0].Ready = last.Sandboxes[0].Ready
			}
			return s, ctx.Err()
		}}, `PodStatus of A_POD: for the sandbox AN_ID it returned the status in last, although Ready differs: take only what cannot have changed`},
		"exit code of another container of the name": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if job := s.Container("job"); job != nil && last != nil {
				i := slices.IndexFunc(last.Containers, func(c *pleg.ContainerStatus) bool { return c.Name == job.Name && c.State == pleg.StateExited })
				job.ExitCode = last.Containers[i].ExitCode
			}
			return s, ctx.Err()
		}}, `PodStatus of "web": for "job" it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"addresses of a stale last": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, last, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if s != nil && last != nil {
				s.Sandboxes[0].IPs = last.Sandboxes[0].IPs
			}
			return s, ctx.Err()
		}}, `PodStatus of A_POD: for the sandbox AN_ID it returned the status in last, although Ready differs: take only what cannot have changed`},
		"first container of a stale last": {stale(func(now, last *pleg.ContainerStatus) {
			if now.ID == "nginx" {
				now.StartedAt = last.StartedAt
			}
		}), `PodStatus of "web": for "nginx" it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"first sandbox of a stale last":     {readiness("w"), `PodStatus of "web": for the sandbox "w" it returned the status in last, although Ready differs: take only what cannot have changed`},
		"sandbox not ready of a stale last": {readiness("old"), `PodStatus of "web": for the sandbox "old" it returned the status in last, although Ready differs: take only what cannot have changed`},
		"error with an older last":          {older(func(s *pleg.PodStatus) (*pleg.PodStatus, error) { return s, errBusy }), `PodStatus of A_POD with an older last: busy`},
		"nothing with an older last":        {older(func(*pleg.PodStatus) (*pleg.PodStatus, error) { return nil, nil }), `PodStatus of A_POD with an older last: <nil>`},
		"nil container with an older last":  {older(func(s *pleg.PodStatus) (*pleg.PodStatus, error) { s.Containers[0] = nil; return s, nil }), `PodStatus of A_POD with an older last: <nil>`},
		"nil sandbox with an older last":    {older(func(s *pleg.PodStatus) (*pleg.PodStatus, error) { s.Sandboxes[0] = nil; return s, nil }), `PodStatus of A_POD with an older last: <nil>`},
		"no container with an older last":   {older(func(s *pleg.PodStatus) (*pleg.PodStatus, error) { s.Containers = nil; return s, nil }), `PodStatus of A_POD: for AN_ID it returned the status in last, although the state or the id differs: take only what cannot have changed`},
		"no sandbox with an older last":     {older(func(s *pleg.PodStatus) (*pleg.PodStatus, error) { s.Sandboxes = nil; return s, nil }), `PodStatus of A_POD: for the sandbox AN_ID it returned the status in last, although Ready differs: take only what cannot have changed`},
		"sandbox that nobody has":           {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{{ID: "c", SandboxID: "s"}}, Sandboxes: []*pleg.Container{{ID: "t"}}}), `ListPods: "c" of pod "u" has the SandboxID "s", which no sandbox of the pod has`},
		"listed time of 1970":               {listing(&pleg.Pod{UID: "u", Containers: []*pleg.Container{{ID: "c", CreatedAt: time.Unix(0, 0).UTC()}}}), `ListPods: "c" of pod "u" was created at 1970-01-01 00:00:00 +0000 UTC: leave a time zero if it is not known`},
		"listed sandbox of 1969":            {listing(&pleg.Pod{UID: "u", Sandboxes: []*pleg.Container{{ID: "s", CreatedAt: time.Date(1969, 2, 3, 0, 0, 0, 0, time.UTC)}}}), `ListPods: "s" of pod "u" was created at 1969-02-03 00:00:00 +0000 UTC: leave a time zero if it is not known`},
		"creation in the future":            {answering(func(s *pleg.PodStatus) { s.Containers[0].CreatedAt = time.Date(2300, 1, 2, 0, 0, 0, 0, time.UTC) }), `PodStatus of A_POD WHEN: AN_ID has the time 2300-01-02 00:00:00 +0000 UTC: leave a time zero if it is not known`},
		"end in the future":                 {answering(func(s *pleg.PodStatus) { s.Containers[0].FinishedAt = time.Date(2201, 1, 2, 0, 0, 0, 0, time.UTC) }), `PodStatus of A_POD WHEN: AN_ID has the time 2201-01-02 00:00:00 +0000 UTC: leave a time zero if it is not known`},
		"time of the far future":            {answering(func(s *pleg.PodStatus) { s.Containers[0].StartedAt = time.Unix(1e15, 0).UTC() }), `PodStatus of A_POD WHEN: AN_ID has the time 31690708-07-05 01:46:40 +0000 UTC: leave a time zero if it is not known`},
		"sandbox of year 1":                 {answering(func(s *pleg.PodStatus) { s.Sandboxes[0].CreatedAt = time.Time{}.Add(1) }), `PodStatus of A_POD WHEN: AN_ID has the time 0001-01-01 00:00:00.000000001 +0000 UTC: leave a time zero if it is not known`},
		"inspection that hangs after its context": {broken{Runtime: good(), status: func(ctx context.Context, _ *pleg.Pod, _, s *pleg.PodStatus) (*pleg.PodStatus, error) {
			if ctx.Err() != nil {
				time.Sleep(time.Hour)
			}
			return s, ctx.Err()
		}}, "PodStatus: it did not return within 10s after its context had ended"},
		"events that end without an error": {broken{Runtime: good(), watch: func(context.Context) error { return nil }}, "WatchEvents: it returned no error"},
		"events that ignore their context": {broken{Runtime: good(), watch: func(context.Context) error { time.Sleep(time.Hour); return nil }}, "WatchEvents: it did not return within 10s after its context had ended"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			calls.Store(0)
			found := &reporter{TB: t}
			words := strings.NewReplacer("…", ".*", "WHEN", "(alone|at the same time as others)", "A_POD", `"(web|db)"`, "AN_ID", `"(nginx|job|postgres|w|d)"`)
			only := regexp.MustCompile("(?s)^" + words.Replace(regexp.QuoteMeta(tc.want)) + "$")
			began := time.Now()
			plegtest.CheckRuntime(found, tc.rt)
			if took := time.Since(began); took > 90*time.Second || strings.HasSuffix(tc.want, "within 10s after its context had ended") && took != 10*time.Second || strings.HasSuffix(tc.want, "deadline exceeded") && took != time.Minute {
				t.Errorf("the check took %v, want about a minute at most", took)
			}
			time.Sleep(2 * time.Hour) // until the hanging calls have ended
			if len(found.errs) == 0 || strings.Contains(tc.want, " WHEN:") && !slices.ContainsFunc(found.errs, func(err string) bool { return strings.Contains(err, " alone: ") }) {
				t.Errorf("found %q, want %s", found.errs, tc.want)
			}
			for n, err := range found.errs {
				if !only.MatchString(err) {
					t.Errorf("found %s, want only %s", err, tc.want)
				}
				if slices.Contains(found.errs[:n], err) && !strings.Contains(err, "at the same time") {
					t.Errorf("found %s twice", err)
				}
			}
		})
	}
}

// reporter keeps the reports of a test.
type reporter struct {
	testing.TB
	mu   sync.Mutex
	errs []string
}

func (r *reporter) Helper() {}

func (r *reporter) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, fmt.Sprintf(format, args...))
}

func TestExitCodes(t *testing.T) {
	status := plegtest.Status(plegtest.Pod("web", "a=exited b=exited:137:OOMKilled c=exited:0 d=exited:1 e=running"))
	for n, want := range []struct {
		code   int32
		reason string
	}{{3, "Error"}, {137, "OOMKilled"}, {0, "Completed"}, {1, "Error"}, {0, ""}} {
		if c := status.Containers[n]; c.ExitCode != want.code || c.Reason != want.reason {
			t.Errorf("%s ended with %d %q, want %d %q", c.ID, c.ExitCode, c.Reason, want.code, want.reason)
		}
	}
	for words, says := range map[string]string{
		"a=running:1": `no such state: "a=running:1"`, "b=running /a=exited:1": `no such state: "/a=exited:1"`, "a=exited:x:Error": `no exit code: "x:Error"`,
		"a=exited:": `no exit code: ""`, "a=dead": `no such state: "a=dead"`, "a": `no such state: "a"`,
	} {
		func() {
			defer func() {
				if got := recover(); got != "plegtest: "+says {
					t.Errorf("%q: %v, want a panic: %s", words, got, says)
				}
			}()
			plegtest.Pod("web", words)
		}()
	}
}
