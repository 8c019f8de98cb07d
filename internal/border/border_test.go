package border_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout = 10 * time.Second
	grace   = time.Second // of the border
)

var errBroken = errors.New("broken")

// fake has one function for each call.
type fake struct {
	list   func(ctx context.Context) ([]*pleg.Pod, error)
	one    func(ctx context.Context) (*pleg.Pod, error)
	status func(ctx context.Context) (*pleg.PodStatus, error)
	watch  func(ctx context.Context, hint func(pleg.Hint)) error
}

func (f fake) ListPods(ctx context.Context) ([]*pleg.Pod, error) { return f.list(ctx) }

func (f fake) ListPod(ctx context.Context, _ pleg.PodUID) (*pleg.Pod, error) { return f.one(ctx) }

func (f fake) PodStatus(ctx context.Context, _ *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	return f.status(ctx)
}

func (f fake) WatchEvents(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
	return f.watch(ctx, hint)
}

func guard(t *testing.T, rt pleg.Runtime) *border.Runtime {
	t.Helper()
	r, err := border.New(rt, border.Options{ListTimeout: timeout, Logger: slog.New(slog.DiscardHandler)})
	kit.Must(t, err)
	return r
}

// misbehaviours are what a call of the runtime may do instead of a normal answer.
// want is the end of the resulting error.
var misbehaviours = map[string]struct {
	do   func(ctx context.Context) error
	want string
	took time.Duration
}{
	"error":         {do: func(context.Context) error { return errBroken }, want: "broken"},
	"panic":         {do: func(context.Context) error { panic("nil map") }, want: "panic: nil map"},
	"Goexit":        {do: func(context.Context) error { runtime.Goexit(); return nil }, want: "called runtime.Goexit"},
	"no answer":     {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, want: "context deadline exceeded", took: timeout},
	"a late answer": {do: func(context.Context) error { time.Sleep(timeout + grace/2); return errBroken }, want: "broken", took: timeout + grace/2},
}

func TestMisbehaviourIsTheErrorOfThatCall(t *testing.T) {
	for name, tc := range misbehaviours {
		kit.Bubble(t, name, func(t *testing.T) {
			r := guard(t, fake{
				list:   func(ctx context.Context) ([]*pleg.Pod, error) { return []*pleg.Pod{{UID: "a"}}, tc.do(ctx) },
				one:    func(ctx context.Context) (*pleg.Pod, error) { return &pleg.Pod{UID: "a"}, tc.do(ctx) },
				status: func(ctx context.Context) (*pleg.PodStatus, error) { return &pleg.PodStatus{}, tc.do(ctx) },
			})
			pod := &pleg.Pod{UID: "a", Namespace: "shop", Name: "web-0"}
			for operation, call := range map[string]func() error{
				"list pods: ": func() error {
					pods, err := r.ListPods(t.Context())
					if pods != nil {
						t.Errorf("pods %v together with an error", pods)
					}
					return err
				},
				"list pod a: ": func() error { _, err := r.PodLister().ListPod(t.Context(), "a"); return err },
				"inspect pod shop/web-0 (a): ": func() error {
					_, err := r.PodStatus(t.Context(), pod, nil, timeout)
					return err
				},
			} {
				start := time.Now()
				err := call()
				if err == nil || !strings.HasPrefix(err.Error(), operation) || !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("error %v, want %q ... %q", err, operation, tc.want)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("%s took %v, want %v", operation, took, tc.took)
				}
				if late := tc.took > 0; late != (err != nil && strings.Contains(err.Error(), "no answer within the")) {
					t.Errorf("error %v, want the timeout in it: %v", err, late)
				}
			}
		})
	}
}

func TestMisbehaviourEndsTheStream(t *testing.T) {
	for name, tc := range misbehaviours {
		if tc.took > 0 {
			continue // a stream has no deadline
		}
		t.Run(name, func(t *testing.T) {
			r := guard(t, fake{watch: func(ctx context.Context, _ func(pleg.Hint)) error { return tc.do(ctx) }})
			if err := r.EventWatcher().WatchEvents(t.Context(), nil, nil); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	r := guard(t, fake{watch: func(context.Context, func(pleg.Hint)) error { return nil }})
	if err := r.EventWatcher().WatchEvents(t.Context(), nil, nil); err == nil {
		t.Error("a stream that ends without an error returned nil")
	}
}

// What is malformed is skipped and counted, and nothing of the runtime's own is changed.
func TestMalformedItemsOfAListAreSkipped(t *testing.T) {
	listed := func() []*pleg.Pod {
		return []*pleg.Pod{
			{UID: "good", Containers: []*pleg.Container{{ID: "c1"}}},
			nil,
			{UID: "partial", Containers: []*pleg.Container{nil, {ID: "c3"}}, Sandboxes: []*pleg.Container{{ID: "s3"}, nil, nil}},
			{Containers: []*pleg.Container{{ID: "c2"}}},
			{UID: "last"},
		}
	}
	own, reg := listed(), prometheus.NewRegistry()
	r, err := border.New(fake{list: func(context.Context) ([]*pleg.Pod, error) { return own, nil }},
		border.Options{ListTimeout: timeout, Logger: slog.New(slog.DiscardHandler), Metrics: instrument.Registry{Registerer: reg}})
	kit.Must(t, err)
	pods, err := r.ListPods(t.Context())
	want := []*pleg.Pod{
		listed()[0], {UID: "partial", Containers: []*pleg.Container{{ID: "c3"}}, Sandboxes: []*pleg.Container{{ID: "s3"}}}, listed()[4],
	}
	if err != nil || !reflect.DeepEqual(pods, want) {
		t.Errorf("pods %v, %v, want %v", pods, err, want)
	}
	if !reflect.DeepEqual(own, listed()) {
		t.Errorf("the runtime's list was changed: %v", own)
	}
	if n := kit.Metric(t, reg, "pleg_malformed_pods_total"); n != 5 {
		t.Errorf("%v malformed items counted, want two pods and three containers", n)
	}
}

func TestWellFormedListIsNotCopied(t *testing.T) {
	pods := []*pleg.Pod{{UID: "a"}, {UID: "b"}}
	r := guard(t, fake{list: func(context.Context) ([]*pleg.Pod, error) { return pods, nil }})
	if got, err := r.ListPods(t.Context()); err != nil || &got[0] != &pods[0] {
		t.Errorf("the list is a copy, or %v; want the list itself", err)
	}
}

func TestMalformedAnswersAreRefused(t *testing.T) {
	r := guard(t, fake{
		one:    func(context.Context) (*pleg.Pod, error) { return &pleg.Pod{UID: "another"}, nil },
		status: func(context.Context) (*pleg.PodStatus, error) { return nil, nil },
	})
	if _, err := r.PodLister().ListPod(t.Context(), "a"); err == nil {
		t.Error("ListPod accepted another pod")
	}
	if _, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "a"}, nil, timeout); err == nil {
		t.Error("PodStatus accepted neither a status nor an error")
	}
	r = guard(t, fake{
		one: func(context.Context) (*pleg.Pod, error) { return nil, nil },
		status: func(context.Context) (*pleg.PodStatus, error) {
			return &pleg.PodStatus{Sandboxes: make([]*pleg.SandboxStatus, 1)}, nil
		},
	})
	if pod, err := r.PodLister().ListPod(t.Context(), "a"); pod != nil || err != nil {
		t.Errorf("ListPod of a removed pod = %v, %v, want nil and no error", pod, err)
	}
	if _, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "a"}, nil, timeout); err == nil {
		t.Error("PodStatus accepted a nil sandbox")
	}
	r = guard(t, fake{status: func(context.Context) (*pleg.PodStatus, error) { return &pleg.PodStatus{UID: "another"}, nil }})
	if _, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "a"}, nil, timeout); err == nil {
		t.Error("PodStatus accepted the status of another pod")
	}
}

func TestHintHasNoOtherStatusThanAFinalOne(t *testing.T) {
	for name, tc := range map[string]struct {
		status *pleg.ContainerStatus
		kept   bool
	}{
		"none":              {nil, false},
		"exited":            {&pleg.ContainerStatus{ID: "c", State: pleg.StateExited}, true},
		"running":           {&pleg.ContainerStatus{ID: "c", State: pleg.StateRunning}, false},
		"another container": {&pleg.ContainerStatus{ID: "d", State: pleg.StateExited}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sent := pleg.Hint{UID: "a", Container: "c", Status: tc.status}
			r := guard(t, fake{watch: func(_ context.Context, hint func(pleg.Hint)) error { hint(sent); return errBroken }})
			var got pleg.Hint
			if err := r.EventWatcher().WatchEvents(t.Context(), nil, func(h pleg.Hint) { got = h }); !errors.Is(err, errBroken) {
				t.Errorf("error %v, want %v", err, errBroken)
			}
			if kept := got.Status != nil; kept != tc.kept || got.UID != "a" {
				t.Errorf("hint %+v, want it with its status: %v", got, tc.kept)
			}
		})
	}
}

type reporting struct{ pleg.Runtime }

func (reporting) Calls() []pleg.Call {
	return []pleg.Call{{Method: "ListContainers"}, {Method: "ContainerStatus", PodUID: "a", ID: "c1"}, {Method: "ContainerStatus", PodUID: "a", ID: "c2"}}
}

func TestCallIsTheOldestOfThePod(t *testing.T) {
	calls := guard(t, reporting{}).Calls()
	if c := border.CallOf(calls, "a"); c == nil || c.ID != "c1" {
		t.Errorf("call of pod a is %+v, want that of c1", c)
	}
	if c := border.CallOf(calls, ""); c == nil || c.Method != "ListContainers" {
		t.Errorf("call of no pod is %+v, want the list", c)
	}
	if c := border.CallOf(calls, "b"); c != nil {
		t.Errorf("call of pod b is %+v, want none", c)
	}
}

// asked is a runtime whose methods that must not block do something else.
type asked struct {
	pleg.Runtime
	do func()
}

func (a asked) Calls() []pleg.Call { a.do(); return []pleg.Call{{Method: "ListContainers"}} }
func (a asked) Degraded() error    { a.do(); return nil }

func TestMethodsThatMustNotBlock(t *testing.T) {
	for name, tc := range map[string]struct {
		do func(release chan struct{})
		ok bool
	}{
		"returns": {func(chan struct{}) {}, true},
		"panics":  {func(chan struct{}) { panic("test") }, false},
		"Goexit":  {func(chan struct{}) { runtime.Goexit() }, false},
		"blocks":  {func(release chan struct{}) { <-release }, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			r := guard(t, asked{do: func() { tc.do(release) }})
			for range 3 {
				began := time.Now()
				if calls := r.Calls(); (calls != nil) != tc.ok {
					t.Errorf("calls %v, want some: %v", calls, tc.ok)
				}
				if err := r.Degraded(); (err == nil) != tc.ok {
					t.Errorf("degraded %v, want none: %v", err, tc.ok)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v", took)
				}
			}
		})
	}
}

func TestOptionalInterfacesAreThoseOfTheRuntime(t *testing.T) {
	r := guard(t, struct{ pleg.Runtime }{})
	if r.PodLister() != nil || r.EventWatcher() != nil || r.Degraded() != nil || r.Calls() != nil {
		t.Error("a plain runtime has a PodLister, an EventWatcher, a call or is degraded")
	}
}
