package border_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout        = 10 * time.Second
	inspectTimeout = timeout + grace/4
	grace          = time.Second // of the border
)

var errBroken = errors.New("broken")

// fake holds one function for each call.
type fake struct {
	list   func(ctx context.Context) ([]*pleg.Pod, error)
	one    func(ctx context.Context) (*pleg.Pod, error)
	status func(ctx context.Context) (*pleg.PodStatus, error)
	watch  func(ctx context.Context, hint func(pleg.Hint)) error
}

func (f fake) ListPods(ctx context.Context) ([]*pleg.Pod, error) { return f.list(ctx) }

func (f fake) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	if uid == "" {
		return nil, errors.New("which pod?")
	}
	return f.one(ctx)
}

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

// misbehaviours are ways in which a call of the runtime does not answer normally. want is the end
// of the resulting error.
var misbehaviours = map[string]struct {
	do   func(ctx context.Context) error
	want string
	took time.Duration
}{
	"error":         {do: func(context.Context) error { return errBroken }, want: "broken"},
	"panic":         {do: func(context.Context) error { panic("nil map") }, want: "panic: nil map"},
	"Goexit":        {do: func(context.Context) error { runtime.Goexit(); return nil }, want: "the embedder's code called runtime.Goexit"},
	"no answer":     {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, want: "context deadline exceeded", took: timeout},
	"a late answer": {do: func(context.Context) error { time.Sleep(timeout + grace/2); return errBroken }, want: "broken", took: timeout + grace/2},
}

func TestMisbehaviourIsTheErrorOfThatCall(t *testing.T) {
	for name, tc := range misbehaviours {
		kit.Bubble(t, name, func(t *testing.T) {
			var log kit.Log
			r, err := border.New(fake{
				list:   func(ctx context.Context) ([]*pleg.Pod, error) { return []*pleg.Pod{{UID: "a"}}, tc.do(ctx) },
				one:    func(ctx context.Context) (*pleg.Pod, error) { return &pleg.Pod{UID: "other"}, tc.do(ctx) },
				status: func(ctx context.Context) (*pleg.PodStatus, error) { return &pleg.PodStatus{}, tc.do(ctx) },
			}, border.Options{ListTimeout: timeout, Logger: log.Logger()})
			kit.Must(t, err)
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
					_, err := r.PodStatus(t.Context(), pod, nil, inspectTimeout)
					return err
				},
			} {
				took, within := tc.took, "no answer within the list timeout of 10s: "
				if strings.HasPrefix(operation, "inspect") {
					within = "no answer within the inspect timeout of 10.25s: "
					if took == timeout {
						took = inspectTimeout
					}
				}
				for range 2 { // the next call is as good
					start := time.Now()
					err := call()
					if err == nil || !strings.HasPrefix(err.Error(), operation) || !strings.HasSuffix(err.Error(), tc.want) || tc.took == 0 && err.Error() != operation+tc.want {
						t.Errorf("error %v, want %q ... %q", err, operation, tc.want)
					}
					if wraps := tc.want == errBroken.Error(); wraps != errors.Is(err, errBroken) {
						t.Errorf("error %v wraps the cause: %v, want %v", err, !wraps, wraps)
					}
					if lasted := time.Since(start); lasted != took {
						t.Errorf("%s took %v, want %v", operation, lasted, took)
					}
					if late := tc.took > 0; late != (err != nil && strings.Contains(err.Error(), within)) {
						t.Errorf("error %v, want the timeout in it: %v", err, late)
					}
				}
			}
			lines := 0
			if name == "panic" {
				lines = 2
			}
			for _, call := range []string{`ListPods podUID=""`, "ListPod podUID=a", "PodStatus podUID=a"} {
				log.RequireLines(t, lines, `level=ERROR msg="embedder's code panicked" method=`+call+` err="panic: nil map\n`)
			}
		})
	}
}

func TestMisbehaviourEndsTheStream(t *testing.T) {
	for name, tc := range misbehaviours {
		if tc.took > 0 {
			continue // no deadline bounds a stream
		}
		t.Run(name, func(t *testing.T) {
			r := guard(t, fake{watch: func(ctx context.Context, _ func(pleg.Hint)) error { return tc.do(ctx) }})
			if err := r.EventWatcher().WatchEvents(t.Context(), nil, nil); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	r := guard(t, fake{watch: func(context.Context, func(pleg.Hint)) error { return nil }})
	if err := r.EventWatcher().WatchEvents(t.Context(), nil, nil); err == nil || err.Error() != "the stream ended without an error" {
		t.Errorf("a stream that ends without an error returned %v", err)
	}
}

// A malformed item is counted and named once. An item that no stage could place is skipped. The runtime's own data is
// not changed.
func TestMalformedItemsOfAListAreSkipped(t *testing.T) {
	c := func(ids ...pleg.ContainerID) (list []*pleg.Container) {
		for _, id := range ids {
			list = append(list, &pleg.Container{ID: id, Name: "of-" + string(id)})
		}
		return list
	}
	for name, tc := range map[string]struct {
		listed, want []*pleg.Pod
		named        []string // a line for each skipped item
	}{
		"nil pod":        {[]*pleg.Pod{nil, {UID: "a"}}, []*pleg.Pod{{UID: "a"}}, []string{`podUID="" pod="" containerID="" container="" reason="it is nil"`}},
		"pod without ID": {[]*pleg.Pod{{Name: "web", Containers: c("c")}, {UID: "a"}}, []*pleg.Pod{{UID: "a"}}, []string{`podUID="" pod=/web containerID="" container="" reason="the pod has no UID"`}},
		"nil containers": {
			[]*pleg.Pod{{UID: "a", Containers: []*pleg.Container{nil, c("c")[0]}, Sandboxes: c("s")}, {UID: "b", Namespace: "shop", Name: "web", Sandboxes: []*pleg.Container{nil, c("t")[0]}}},
			[]*pleg.Pod{{UID: "a", Containers: c("c"), Sandboxes: c("s")}, {UID: "b", Namespace: "shop", Name: "web", Sandboxes: c("t")}},
			[]string{`podUID=a pod=/ containerID="" container="" reason="it is nil"`, `podUID=b pod=shop/web containerID="" container="" reason="it is nil"`},
		},
		"empty container id": {[]*pleg.Pod{{UID: "a", Containers: c("", "c")}}, []*pleg.Pod{{UID: "a", Containers: c("c")}}, []string{`podUID=a pod=/ containerID="" container=of- reason="it has no id"`}},
		"id twice in a pod": {
			[]*pleg.Pod{{UID: "a", Containers: c("c", "c", "e", "e", "d"), Sandboxes: c("d", "s")}},
			[]*pleg.Pod{{UID: "a", Containers: c("c", "e", "d"), Sandboxes: c("s")}},
			[]string{
				`podUID=a pod=/ containerID=c container=of-c reason="the pod has the id twice"`, `podUID=a pod=/ containerID=d container=of-d reason="the pod has the id twice"`,
				`podUID=a pod=/ containerID=e container=of-e reason="the pod has the id twice"`,
			},
		},
		"UID twice": {
			[]*pleg.Pod{{UID: "a", Containers: c("c")}, {UID: "a", Namespace: "shop", Name: "db", Containers: c("d")}},
			[]*pleg.Pod{{UID: "a", Containers: c("c")}},
			[]string{`podUID=a pod=shop/db containerID="" container="" reason="the list has the UID twice"`},
		},
		"id in two pods": {
			[]*pleg.Pod{{UID: "b", Containers: c("c", "d")}, {UID: "a", Containers: c("c")}},
			[]*pleg.Pod{{UID: "b", Containers: c("c", "d")}, {UID: "a", Containers: c("c")}},
			[]string{`podUID=a pod=/ containerID=c container=of-c reason="pod b has the id too; it is kept in both"`},
		},
		"id in three pods": {
			[]*pleg.Pod{{UID: "b", Containers: c("c")}, {UID: "a", Containers: c("c")}, {UID: "z", Containers: c("c")}},
			[]*pleg.Pod{{UID: "b", Containers: c("c")}, {UID: "a", Containers: c("c")}, {UID: "z", Containers: c("c")}},
			[]string{
				`podUID=a pod=/ containerID=c container=of-c reason="pod b has the id too; it is kept in both"`,
				`podUID=z pod=/ containerID=c container=of-c reason="pod b has the id too; it is kept in both"`,
			},
		},
		"one of each": {
			[]*pleg.Pod{{UID: "a", Containers: c("", "c")}, nil, {Name: "web"}, {UID: "a"}, {UID: "\xff"}},
			[]*pleg.Pod{{UID: "a", Containers: c("c")}, {UID: "\xff"}},
			[]string{
				`podUID=a pod=/ containerID="" container=of- reason="it has no id"`, `podUID="" pod="" containerID="" container="" reason="it is nil"`,
				`podUID="" pod=/web containerID="" container="" reason="the pod has no UID"`, `podUID=a pod=/ containerID="" container="" reason="the list has the UID twice"`,
				`podUID="\xff" pod=/ containerID="" container="" reason="the UID is not UTF-8; it is kept, and the socket shows it with U+FFFD"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log kit.Log
			before, reg := fmt.Sprint(words(tc.listed)), prometheus.NewRegistry()
			r, err := border.New(fake{list: func(context.Context) ([]*pleg.Pod, error) { return tc.listed, nil }},
				border.Options{ListTimeout: timeout, Logger: log.Logger(), Metrics: instrument.Registry{Registerer: reg}})
			kit.Must(t, err)
			for n := range 2 {
				pods, err := r.ListPods(t.Context())
				if err != nil || !reflect.DeepEqual(pods, tc.want) {
					t.Errorf("pods %v, %v, want %v", words(pods), err, words(tc.want))
				}
				if got := kit.Metric(t, reg, "pleg_malformed_pods_total"); got != float64((n+1)*len(tc.named)) {
					t.Errorf("%v malformed items counted in %d lists, want %d in each", got, n+1, len(tc.named))
				}
			}
			if after := fmt.Sprint(words(tc.listed)); after != before {
				t.Errorf("the runtime's list was changed: %s, was %s", after, before)
			}
			log.RequireLines(t, len(tc.named), "")
			for _, want := range tc.named {
				log.RequireLines(t, 1, `level=WARN msg="malformed item in the runtime's list" `+want+"\n")
			}
		})
	}
}

// words lists the ids of a list.
func words(pods []*pleg.Pod) (words []string) {
	for _, pod := range pods {
		if pod == nil {
			words = append(words, "nil")
			continue
		}
		words = append(words, string(pod.UID))
		for _, c := range slices.Concat(pod.Containers, pod.Sandboxes) {
			if c == nil {
				c = &pleg.Container{ID: "nil"}
			}
			words = append(words, " "+string(c.ID))
		}
	}
	return words
}

// A list of one pod leaves out the same items as the list of all pods: its containers must not come
// and go.
func TestListOfOnePodLeavesOutTheSame(t *testing.T) {
	shared := &pleg.Pod{UID: "b", Containers: []*pleg.Container{nil, {ID: "c"}, {}, {ID: "d"}, {ID: "d"}}}
	reg, log := prometheus.NewRegistry(), &strings.Builder{}
	r, err := border.New(fake{
		list: func(context.Context) ([]*pleg.Pod, error) {
			return []*pleg.Pod{shared}, nil
		},
		one: func(context.Context) (*pleg.Pod, error) { return shared, nil },
	}, border.Options{ListTimeout: timeout, Logger: slog.New(slog.NewTextHandler(log, nil)), Metrics: instrument.Registry{Registerer: reg}})
	kit.Must(t, err)
	want := "[b  c  d]"
	for range 3 {
		if pods, err := r.ListPods(t.Context()); err != nil || fmt.Sprint(words(pods[:1])) != want {
			t.Errorf("the list has %v, %v, want %s", words(pods[:1]), err, want)
		}
		if pod, err := r.PodLister().ListPod(t.Context(), "b"); err != nil || fmt.Sprint(words([]*pleg.Pod{pod})) != want {
			t.Errorf("the list of one pod has %v, %v, want %s", pod, err, want)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines for 3 items, want each once:\n%s", n, log)
	}
	kit.RequireMetric(t, reg, 3*6, "pleg_malformed_pods_total")
}

// The id of a container never moves: it stays in its pod for as long as that is listed.
func TestContainerStaysInItsPod(t *testing.T) {
	for name, tc := range map[string]struct {
		lists []string // pods with a semicolon between them
		want  string   // the last list
		moves bool     // Options.KubeletEvents
		lines int      // of the log about the move
	}{
		"it flaps once":                {[]string{"a: c d; b: e", "a: d; b: c e", "a: c d; b: e"}, "a: c d; b: e", false, 1},
		"it stays in the other":        {[]string{"a: c d; b: e", "a: d; b: c e", "a: d; b: c e"}, "a: d c; b: e", false, 1},
		"it moves with sandboxes":      {[]string{"a: c d /s /t /u /v; b: e", "a: d; b: c e /s /t /u /v"}, "a: d c; b: e /s /t /u /v", false, 1},
		"beside a pod without a UID":   {[]string{"a: c d; b: e; : x", "a: d; b: c e; : x"}, "a: d c; b: e", false, 1},
		"two change places":            {[]string{"a: c d; b: e f", "a: d e; b: f c"}, "a: d c; b: f e", false, 1},
		"its pod goes":                 {[]string{"a: c d; b: e", "b: c e"}, "b: c e", false, 0},
		"its pod goes later":           {[]string{"a: c d; b: e", "a: d; b: c e", "b: c e"}, "b: c e", false, 1},
		"it is in both":                {[]string{"a: c d; b: c e", "a: d; b: c e"}, "a: d; b: c e", false, 0},
		"it is in both, after a move":  {[]string{"a: c d; b: e", "a: c d; b: c e"}, "a: c d; b: c e", false, 0},
		"it is in both, the other way": {[]string{"a: c d; b: e", "b: c e; a: c d"}, "b: c e; a: c d", false, 0},
		"it stays, between others":     {[]string{"a: c d; b: e f", "a: d; b: e c f"}, "a: d c; b: e f", false, 1},
		"it may move":                  {[]string{"a: c d; b: e", "a: d; b: c e"}, "a: d; b: c e", true, 0},
		"it is a sandbox":              {[]string{"a: d /c; b: e", "a: d; b: e /c"}, "a: d; b: e /c", false, 0},
	} {
		var pods []*pleg.Pod
		var log kit.Log
		rt := fake{list: func(context.Context) ([]*pleg.Pod, error) { return pods, nil }}
		r, err := border.New(rt, border.Options{ListTimeout: timeout, KubeletEvents: tc.moves, Logger: log.Logger()})
		kit.Must(t, err)
		var got []*pleg.Pod
		for _, text := range tc.lists {
			pods = nil
			for one := range strings.SplitSeq(text, "; ") {
				uid, ids, _ := strings.Cut(one, ": ")
				pod := &pleg.Pod{UID: pleg.PodUID(uid)}
				for id := range strings.FieldsSeq(ids) {
					id, sandbox := strings.CutPrefix(id, "/")
					c := &pleg.Container{ID: pleg.ContainerID(id), Name: "of-" + id}
					if sandbox {
						pod.Sandboxes = append(pod.Sandboxes, c)
					} else {
						pod.Containers = append(pod.Containers, c)
					}
				}
				pods = append(pods, pod)
			}
			before := fmt.Sprint(words(pods))
			got, err = r.ListPods(t.Context())
			if kit.Must(t, err); fmt.Sprint(words(pods)) != before {
				t.Errorf("%s: the runtime's list was changed: %v, was %s", name, words(pods), before)
			}
		}
		var list []string
		for _, pod := range got {
			var ids []string
			for _, c := range pod.Containers {
				ids = append(ids, string(c.ID))
			}
			for _, s := range pod.Sandboxes {
				ids = append(ids, "/"+string(s.ID))
			}
			list = append(list, string(pod.UID)+": "+strings.Join(ids, " "))
		}
		if got := strings.Join(list, "; "); got != tc.want {
			t.Errorf("%s: the list is %q, want %q", name, got, tc.want)
		}
		log.RequireLines(t, tc.lines, `podUID=b pod=/ containerID=c container=of-c reason="it was in pod a before, and stays there"`)
	}
}

// A runtime that invents items must not fill the log.
func TestManyMalformedItems(t *testing.T) {
	reg, log := prometheus.NewRegistry(), &strings.Builder{}
	pods := make([]*pleg.Pod, 5000)
	for n := range pods {
		pods[n] = &pleg.Pod{Name: fmt.Sprint("pod", n)}
	}
	r, err := border.New(fake{list: func(context.Context) ([]*pleg.Pod, error) { return pods, nil }},
		border.Options{ListTimeout: timeout, Logger: slog.New(slog.NewTextHandler(log, nil)), Metrics: instrument.Registry{Registerer: reg}})
	kit.Must(t, err)
	_, err = r.ListPods(t.Context())
	kit.Must(t, err)
	if n := strings.Count(log.String(), "\n"); n != 100 {
		t.Errorf("%d lines, want 100", n)
	}
	kit.Must(t, testutil.GatherAndCompare(reg, strings.NewReader(`# HELP pleg_malformed_pods_total Pods and containers that the runtime lists without an id or with the id of another one.
# TYPE pleg_malformed_pods_total counter
pleg_malformed_pods_total 5000
`)))
	if _, err := border.New(fake{}, border.Options{Metrics: instrument.Registry{Registerer: reg}}); err == nil || !strings.HasPrefix(err.Error(), "register metric pleg_malformed_pods_total: ") {
		t.Errorf("a second border with these metrics: %v", err)
	}
}

// The stages read a list while the runtime makes the next one, perhaps in the same slice.
func TestSliceThatTheRuntimeUsesAgain(t *testing.T) {
	a, b := &pleg.Pod{UID: "a", Containers: []*pleg.Container{{ID: "c"}}}, &pleg.Pod{UID: "b", Sandboxes: []*pleg.Container{{ID: "s"}}}
	pods := []*pleg.Pod{a, b}
	r := guard(t, fake{list: func(context.Context) ([]*pleg.Pod, error) { return pods, nil }})
	first, err := r.ListPods(t.Context())
	kit.Must(t, err)
	if again, err := r.ListPods(t.Context()); err != nil || &again[0] != &first[0] {
		t.Errorf("the same list is copied again, or %v", err)
	}
	for _, second := range []*pleg.Pod{{UID: "b"}, nil} {
		pods[1] = second
		if got, err := r.ListPods(t.Context()); err != nil || slices.Contains(got, nil) {
			t.Errorf("the list is %v, %v", words(got), err)
		}
	}
	if !slices.Equal(first, []*pleg.Pod{a, b}) {
		t.Errorf("the first list has become %v", words(first))
	}
}

// An event must be expressible in JSON and in protobuf, whatever times a runtime sends.
func TestTimesAreCut(t *testing.T) {
	latest := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	good := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	for name, tc := range map[string]struct{ at, want time.Time }{
		"zero":                 {},
		"good":                 {good, good},
		"year 1":               {time.Date(1, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 6, 1, 0, 0, 0, 0, time.UTC)},
		"year 0":               {time.Date(0, 6, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
		"seconds of a nano":    {time.Unix(1_700_000_000_000_000_000, 0), latest},
		"the last moment":      {latest, latest},
		"after it in a zone":   {latest.In(time.FixedZone("", 3600)), latest},
		"the year 9999":        {latest.AddDate(-1, 0, 1), latest.AddDate(-1, 0, 1)},
		"the last, in a zone":  {latest.In(time.FixedZone("", -3600)), latest},
		"year 0 in a zone":     {time.Time{}.Add(1).In(time.FixedZone("", -3600)), time.Time{}.Add(1)},
		"a zone of three days": {good.In(time.FixedZone("", 3*86400)), good},
		"three days west":      {good.In(time.FixedZone("", -3*86400)), good},
		"a zone of 18 hours":   {good.In(time.FixedZone("", 18*3600)), good},
		"18 hours west":        {good.In(time.FixedZone("", -18*3600)), good},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &pleg.Pod{UID: "a", Containers: []*pleg.Container{{ID: "good", CreatedAt: good}, {ID: "c", CreatedAt: tc.at}, {ID: "d", CreatedAt: tc.at}}, Sandboxes: []*pleg.Container{{ID: "s", CreatedAt: tc.at}, {ID: "t", CreatedAt: tc.at}}}
			status := &pleg.PodStatus{
				UID:        "a",
				Containers: []*pleg.ContainerStatus{{ID: "good", StartedAt: good}, {ID: "c", CreatedAt: tc.at, StartedAt: tc.at, FinishedAt: tc.at}, {ID: "d", FinishedAt: tc.at}},
				Sandboxes:  []*pleg.SandboxStatus{{ID: "s", CreatedAt: tc.at}, {ID: "t", CreatedAt: tc.at}},
			}
			pods, got := answersOf(t, pod, status)
			times := []time.Time{
				pods[0].Containers[1].CreatedAt, pods[0].Sandboxes[0].CreatedAt,
				got.Containers[1].CreatedAt, got.Containers[1].StartedAt, got.Containers[1].FinishedAt, got.Sandboxes[0].CreatedAt,
				pods[0].Containers[2].CreatedAt, pods[0].Sandboxes[1].CreatedAt, got.Containers[2].FinishedAt, got.Sandboxes[1].CreatedAt, // each of several
			}
			for n, at := range times {
				if !at.Equal(tc.want) {
					t.Errorf("time %d is %v, want %v", n, at, tc.want)
				}
				if _, err := json.Marshal(at); err != nil {
					t.Error(err)
				}
			}
			moved := []string{"a zone of three days", "three days west", "after it in a zone", "year 0 in a zone"}
			if same := tc.at.Equal(tc.want) && !slices.Contains(moved, name); same != (got == status && pods[0] == pod) {
				t.Errorf("copied: %t, %t; want copies only of what is cut", got != status, pods[0] != pod)
			}
			if !pod.Containers[1].CreatedAt.Equal(tc.at) || !status.Containers[1].CreatedAt.Equal(tc.at) || !status.Sandboxes[0].CreatedAt.Equal(tc.at) {
				t.Error("what the runtime returned was changed")
			}
		})
	}
}

// answersOf returns what the border lets through of a runtime with one pod.
func answersOf(t *testing.T, pod *pleg.Pod, status *pleg.PodStatus) ([]*pleg.Pod, *pleg.PodStatus) {
	t.Helper()
	r := guard(t, fake{
		list:   func(context.Context) ([]*pleg.Pod, error) { return []*pleg.Pod{pod}, nil },
		status: func(context.Context) (*pleg.PodStatus, error) { return status, nil },
	})
	pods, err := r.ListPods(t.Context())
	kit.Must(t, err)
	got, err := r.PodStatus(t.Context(), pod, nil, timeout)
	kit.Must(t, err)
	return pods, got
}

// A time is cut also if all the others are good.
func TestOneTimeIsCut(t *testing.T) {
	late := time.Unix(1_700_000_000_000_000_000, 0)
	for n, set := range []func(*pleg.ContainerStatus, *pleg.SandboxStatus){
		func(c *pleg.ContainerStatus, _ *pleg.SandboxStatus) { c.CreatedAt = late },
		func(c *pleg.ContainerStatus, _ *pleg.SandboxStatus) { c.StartedAt = late },
		func(c *pleg.ContainerStatus, _ *pleg.SandboxStatus) { c.FinishedAt = late },
		func(_ *pleg.ContainerStatus, s *pleg.SandboxStatus) { s.CreatedAt = late },
	} {
		c := pleg.ContainerStatus{ID: "c", CreatedAt: time.Unix(1, 0), StartedAt: time.Unix(2, 0), FinishedAt: time.Unix(3, 0)}
		status := &pleg.PodStatus{Containers: []*pleg.ContainerStatus{new(c)}, Sandboxes: []*pleg.SandboxStatus{{ID: "s"}}}
		set(status.Containers[0], status.Sandboxes[0])
		pod := &pleg.Pod{
			UID: "a", Containers: []*pleg.Container{{ID: "c", CreatedAt: status.Containers[0].CreatedAt}}, Sandboxes: []*pleg.Container{{ID: "s", CreatedAt: status.Sandboxes[0].CreatedAt}},
		}
		pods, got := answersOf(t, pod, status)
		for _, is := range []any{pods, got} {
			if _, err := json.Marshal(is); err != nil {
				t.Errorf("time %d: %v", n, err)
			}
		}
		is := got.Containers[0]
		for i, times := range [][2]time.Time{{is.CreatedAt, c.CreatedAt}, {is.StartedAt, c.StartedAt}, {is.FinishedAt, c.FinishedAt}} {
			if times[0].Equal(times[1]) == (i == n) {
				t.Errorf("time %d is cut: time %d is %v, was %v", n, i, times[0], times[1])
			}
		}
	}
}

// An answer counts as long as somebody waits for it, also after the timeout.
func TestLateAnswerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guard(t, fake{list: func(context.Context) ([]*pleg.Pod, error) {
			time.Sleep(timeout + grace/2)
			return []*pleg.Pod{{UID: "a"}}, nil
		}})
		if pods, err := r.ListPods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("the list is %v, %v", words(pods), err)
		}
	})
}

// A malformed item is logged once, and again if it comes back after a list without one.
func TestUIDThatIsNotUTF8IsLogged(t *testing.T) {
	log := new(bytes.Buffer)
	good, bad := []*pleg.Pod{{UID: "a"}}, []*pleg.Pod{{UID: "a\xff"}}
	pods := bad
	r, err := border.New(fake{list: func(context.Context) ([]*pleg.Pod, error) { return pods, nil }},
		border.Options{ListTimeout: timeout, Logger: slog.New(slog.NewTextHandler(log, nil))})
	kit.Must(t, err)
	for n, lines := range []int{1, 1, 1, 2, 2, 3, 3, 4, 5} {
		switch pods = bad; n {
		case 2, 4:
			pods = good
		case 6:
			pods = nil // an empty list contains none either
		case 8:
			pods = append(bad, &pleg.Pod{UID: "b\xff"}) // a new one beside the old
		}
		if got, err := r.ListPods(t.Context()); err != nil || !slices.Equal(got, pods) {
			t.Errorf("list %d is %v, %v, want the pod", n, words(got), err)
		}
		if strings.Count(log.String(), "not UTF-8") != lines {
			t.Errorf("list %d: logged %q, want %d lines", n, log, lines)
		}
	}
}

// A pod that the runtime does not know is nil, without an error.
func TestMalformedAnswersAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    *pleg.Pod
		status *pleg.PodStatus
		says   string // of the status
	}{
		"a pod of no UID": {&pleg.Pod{}, &pleg.PodStatus{UID: "other"}, "the runtime returned the status of pod other"},
		"another pod":     {&pleg.Pod{UID: "another"}, &pleg.PodStatus{UID: "other"}, "the runtime returned the status of pod other"},
		"nothing":         {nil, nil, "the runtime returned neither a status nor an error"},
		"a nil container": {nil, &pleg.PodStatus{Containers: make([]*pleg.ContainerStatus, 1)}, "the runtime returned a status with a nil container or sandbox"},
		"a nil sandbox":   {nil, &pleg.PodStatus{Sandboxes: make([]*pleg.SandboxStatus, 1)}, "the runtime returned a status with a nil container or sandbox"},
	} {
		r := guard(t, fake{
			one:    func(context.Context) (*pleg.Pod, error) { return tc.pod, nil },
			status: func(context.Context) (*pleg.PodStatus, error) { return tc.status, nil },
		})
		if pod, err := r.PodLister().ListPod(t.Context(), "a"); pod != nil || (err != nil) != (tc.pod != nil) || err != nil && err.Error() != "list pod a: the runtime returned pod "+string(tc.pod.UID) {
			t.Errorf("%s: ListPod = %v, %v", name, pod, err)
		}
		if _, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "a"}, nil, timeout); err == nil || err.Error() != "inspect pod / (a): "+tc.says {
			t.Errorf("%s: PodStatus = %v, want that %s", name, err, tc.says)
		}
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

func TestHintHasOnlyFinalStatusesOfOthers(t *testing.T) {
	final, another := &pleg.ContainerStatus{ID: "d", State: pleg.StateExited}, &pleg.ContainerStatus{ID: "f", State: pleg.StateExited}
	sent := []*pleg.ContainerStatus{nil, {State: pleg.StateExited}, {ID: "e", State: pleg.StateRunning}, {ID: "c", State: pleg.StateExited}, final, another}
	r := guard(t, fake{watch: func(_ context.Context, hint func(pleg.Hint)) error {
		hint(pleg.Hint{UID: "a", Container: "c", Others: sent})
		hint(pleg.Hint{UID: "a", Container: "c", Others: slices.Clone(sent[:4])})
		clear(sent) // the Runtime may use it again
		return errBroken
	}})
	var got [][]*pleg.ContainerStatus
	if err := r.EventWatcher().WatchEvents(t.Context(), nil, func(h pleg.Hint) { got = append(got, h.Others) }); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
	if len(got) != 2 || !slices.Equal(got[0], []*pleg.ContainerStatus{final, another}) || len(got[1]) > 0 {
		t.Errorf("the hints have %+v, want the final statuses of d and f, and none", got)
	}
}

// A hint carries statuses past the inspection: their times are cut as well.
func TestTimesOfHintsAreCut(t *testing.T) {
	late := time.Unix(1_700_000_000_000_000_000, 0)
	ended := func(id pleg.ContainerID) *pleg.ContainerStatus {
		return &pleg.ContainerStatus{ID: id, State: pleg.StateExited, CreatedAt: late, StartedAt: late, FinishedAt: late}
	}
	r := guard(t, fake{watch: func(_ context.Context, hint func(pleg.Hint)) error {
		hint(pleg.Hint{UID: "a", Container: "c", Status: ended("c"), Others: []*pleg.ContainerStatus{ended("d")}})
		return errBroken
	}})
	var got pleg.Hint
	_ = r.EventWatcher().WatchEvents(t.Context(), nil, func(h pleg.Hint) { got = h }) // errBroken
	for _, s := range append(got.Others, got.Status) {
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	}
	if len(got.Others) != 1 || got.Status == nil {
		t.Errorf("the hint is %+v, want both statuses", got)
	}
}

func TestCallIsTheOldestOfThePod(t *testing.T) {
	calls := []pleg.Call{{Method: "ListContainers"}, {Method: "ContainerStatus", PodUID: "a", ID: "c1"}, {Method: "ContainerStatus", PodUID: "a", ID: "c2"}}
	for uid, want := range map[pleg.PodUID]*pleg.Call{"a": &calls[1], "": &calls[0], "b": nil} {
		if c := border.CallOf(calls, uid); c != want {
			t.Errorf("call of pod %q is %+v, want %+v", uid, c, want)
		}
	}
}

// reporter is a runtime whose report does something else first.
type reporter struct {
	pleg.Runtime
	do func()
}

func (r reporter) Report() pleg.Report { r.do(); return pleg.Report{Endpoint: "unix:///socket"} }

func TestReportThatFails(t *testing.T) {
	for name, do := range map[string]func(){
		"panics": func() { panic("test") },
		"Goexit": runtime.Goexit,
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var log kit.Log
			r, err := border.New(reporter{do: do}, border.Options{ListTimeout: timeout, Logger: log.Logger()})
			kit.Must(t, err)
			for range 2 {
				if got := r.Report(); got.Endpoint != "" || got.Degraded == nil || got.Degraded.Error() != "the runtime's Report panics" {
					t.Errorf("report %+v, want an error alone", got)
				}
				time.Sleep(2 * grace) // the first has returned
			}
			log.RequireLines(t, map[string]int{"panics": 2}[name], `level=ERROR msg="embedder's code panicked" method=Report podUID="" err="panic: test`)
		})
	}
}

// While a Report hangs, the last report is returned at once, however many ask. Once it returns, the
// next report is whole.
func TestReportThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, hangs := make(chan struct{}), false
		rt := reporter{do: func() {
			if hangs {
				<-release
			}
		}}
		var log kit.Log
		r, err := border.New(rt, border.Options{ListTimeout: timeout, Logger: log.Logger()})
		kit.Must(t, err)
		require := func(says string, within time.Duration) {
			t.Helper()
			began := time.Now()
			got := r.Report()
			if got.Endpoint == "" || (got.Degraded == nil) != (says == "") || says != "" && got.Degraded.Error() != says {
				t.Errorf("report %+v, want the last one and %q", got, says)
			}
			if took := time.Since(began); took > within {
				t.Errorf("took %v, want at most %v", took, within)
			}
		}
		require("", 0)
		hangs = true
		require("", 50*time.Millisecond)
		require("", 50*time.Millisecond)
		if err := r.Abandoned(); err != nil {
			t.Errorf("after 0.1 s: %v", err)
		}
		time.Sleep(time.Second)
		require("the runtime's Report has not returned for 1s", 50*time.Millisecond)
		for range 10 {
			go r.Report()
			require("the runtime's Report has not returned for 1s", 0)
		}
		if err := r.Abandoned(); err == nil || err.Error() != "calls of the runtime ignore their context and keep running: Report (1s)" {
			t.Errorf("%v, want the call once", err)
		}
		log.RequireLines(t, 1, `level=WARN msg="runtime call ignores its context, abandoned" method=Report podUID="" age=`)
		log.RequireLines(t, 1, "")
		if first := guard(t, rt).Report(); !reflect.ValueOf(first).IsZero() {
			t.Errorf("report %+v, want an empty one while the first hangs", first)
		}
		close(release)
		synctest.Wait()
		require("", 0)
		kit.Must(t, r.Abandoned())
	})
}

// Events that came before an answer are applied before it, also if the process has no other CPU.
func TestEventsComeBeforeTheAnswer(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var applied atomic.Bool
	event := func() { go func() { go func() { applied.Store(true) }() }() }
	r := guard(t, fake{
		list: func(context.Context) ([]*pleg.Pod, error) { event(); return nil, nil },
		one:  func(context.Context) (*pleg.Pod, error) { event(); return &pleg.Pod{UID: "a"}, nil },
	})
	_, err := r.ListPods(t.Context())
	if kit.Must(t, err); !applied.Swap(false) {
		t.Error("the list comes first")
	}
	_, err = r.PodLister().ListPod(t.Context(), "a")
	if kit.Must(t, err); !applied.Load() {
		t.Error("the list of a pod comes first")
	}
}

// A Report that returns while somebody waits for it is whole, however long it took.
func TestReportThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guard(t, reporter{do: func() { time.Sleep(grace + 20*time.Millisecond) }})
		r.Report()
		time.Sleep(grace - 50*time.Millisecond)
		if got := r.Report(); got.Endpoint == "" || got.Degraded != nil {
			t.Errorf("report %+v, want a whole one", got)
		}
	})
}

type probing struct {
	fake
	probe func(ctx context.Context) error
}

func (p probing) Probe(ctx context.Context) error { return p.probe(ctx) }

// A probe is a short call: whatever the timeout of the lists, one without an answer fails after three seconds.
func TestProbeHasItsOwnTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		probe func(ctx context.Context) error
		took  time.Duration
		want  string // in the error
	}{
		"answer":    {func(context.Context) error { return nil }, 0, ""},
		"error":     {func(context.Context) error { return errBroken }, 0, "broken"},
		"no answer": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 3 * time.Second, "no answer within 3s"},
		"no return": {func(context.Context) error { time.Sleep(time.Minute); return nil }, 3*time.Second + grace, "no answer within 3s"},
		"its cause": {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, 3 * time.Second, "no answer within 3s"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			start := time.Now()
			r := guard(t, probing{probe: tc.probe})
			err := r.Prober().Probe(t.Context())
			if took := time.Since(start); took != tc.took {
				t.Errorf("it took %v, want %v", took, tc.took)
			}
			if (err != nil) != (tc.want != "") || err != nil && strings.Count(err.Error(), tc.want) != 1 {
				t.Errorf("error %v, want %q once", err, tc.want)
			}
			if err := r.Abandoned(); name == "no return" && fmt.Sprint(err) != "calls of the runtime ignore their context and keep running: Probe (4s)" {
				t.Errorf("Abandoned = %v", err)
			}
			time.Sleep(time.Minute) // until the call has returned
		})
	}
}

// passive is a runtime that returns what it gets.
type passive struct{ pleg.Runtime }

func (passive) PodStatus(_ context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	if pod.UID != "a" {
		return nil, errBroken
	}
	return last, nil
}

func (passive) WatchEvents(_ context.Context, opened func(), _ func(pleg.Hint)) error {
	opened()
	return errBroken
}

// The last status spares a runtime calls, and a stream without events is up once it is opened.
func TestArgumentsArePassedOn(t *testing.T) {
	r, last, opened := guard(t, passive{}), &pleg.PodStatus{}, 0
	if got, err := r.PodStatus(t.Context(), &pleg.Pod{UID: "a"}, last, timeout); got != last {
		t.Errorf("PodStatus = %v, %v, want the last status", got, err)
	}
	if err := r.EventWatcher().WatchEvents(t.Context(), func() { opened++ }, nil); !errors.Is(err, errBroken) || opened != 1 {
		t.Errorf("WatchEvents = %v, and the stream was opened %d times", err, opened)
	}
}

func TestOptionalInterfacesAreThoseOfTheRuntime(t *testing.T) {
	r := guard(t, struct{ pleg.Runtime }{})
	if r.PodLister() != nil || r.EventWatcher() != nil || r.Prober() != nil || !reflect.ValueOf(r.Report()).IsZero() {
		t.Error("a plain runtime has a PodLister, an EventWatcher, a Prober or a report")
	}
}
