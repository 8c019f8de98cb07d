package serial_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// step is one relist of a single pod "p".
type step struct {
	pod     string // in words; if empty, it is not listed
	empty   bool   // listed without any container
	listErr error
	fail    bool // the inspection fails
	request bool // a reinspection is requested before
	want    string
	calls   int  // inspections in this relist
	wantErr bool // the cache holds an error afterwards
}

var ruleTests = []struct {
	name  string
	steps []step
}{
	{"a new pod starts, containers before sandboxes", []step{
		{pod: "c1=running c0=running /s0=running", want: "Started(c1) Started(c0) Started(/s0)", calls: 1},
	}},
	{"no change, no inspection", []step{
		{pod: "c0=running /s0=running", want: "Started(c0) Started(/s0)", calls: 1},
		{pod: "c0=running /s0=running"},
	}},
	{"what the old pod had goes first, then what is new", []step{
		{pod: "c1=running c0=running /s0=running", want: "Started(c1) Started(c0) Started(/s0)", calls: 1},
		{
			pod:   "d1=running d0=running c1=exited c0=exited /s1=running /s0=exited",
			want:  "Died(c1) Died(c0) Died(/s0) Started(d1) Started(d0) Started(/s1)",
			calls: 1,
		},
	}},
	{"created and unknown are inspected without an event", []step{
		{pod: "c0=created /s0=running", want: "Started(/s0)", calls: 1},
		{pod: "c0=unknown /s0=running"},
		{pod: "c0=running /s0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=unknown /s0=running", calls: 1},
		{pod: "/s0=running", want: "Died(c0) Removed(c0)", calls: 1},
	}},
	{"a failed inspection keeps the change for the next list", []step{
		{pod: "c0=running", fail: true, calls: 1, wantErr: true},
		{pod: "c0=running", fail: true, calls: 1, wantErr: true},
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=running"},
	}},
	{"events are computed against the newest list", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=exited", fail: true, calls: 1, wantErr: true},
		{pod: "c0=running", want: "PodSync", calls: 1},
	}},
	{"a requested reinspection without a change", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=running", request: true, want: "PodSync", calls: 1},
		{pod: "c0=running"},
	}},
	{"a requested reinspection with a change needs no sync", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=exited", request: true, want: "Died(c0)", calls: 1},
		{pod: "c0=exited"},
	}},
	{"a change without an event does not become a sync", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=unknown", request: true, calls: 1},
	}},
	{"a request outlives a failed list", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{listErr: errInspect, request: true},
		{pod: "c0=running", want: "PodSync", calls: 1},
	}},
	{"a request for an unknown pod waits for it", []step{
		{request: true},
		{empty: true, want: "PodSync", calls: 1},
	}},
	{"a gone pod is not inspected", []step{
		{pod: "c1=exited c0=running /s0=running", want: "Died(c1) Started(c0) Started(/s0)", calls: 1},
		{want: "Removed(c1) Died(c0) Removed(c0) Died(/s0) Removed(/s0)"},
		{},
		{pod: "c0=running", want: "Started(c0)", calls: 1},
	}},
	{"gone after a failed inspection", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{pod: "c0=exited", fail: true, calls: 1, wantErr: true},
		{want: "Died(c0) Removed(c0)"},
	}},
	{"gone before any inspection succeeded", []step{
		{pod: "c0=running", fail: true, calls: 1, wantErr: true},
		{want: "PodSync"},
		{},
	}},
	{"a failed list is not an empty node", []step{
		{pod: "c0=running", want: "Started(c0)", calls: 1},
		{listErr: errInspect},
		{pod: "c0=exited", want: "Died(c0)", calls: 1},
	}},
	{"a pod without containers makes no event", []step{
		{empty: true},
		{empty: true, request: true, want: "PodSync", calls: 1},
		{},
	}},
	{"an empty pod has no events", []step{{empty: true}, {}, {request: true}}},
}

// TestRules has the rules of the kubelet. tests/model has the rest, by comparison: statuses,
// addresses, exit codes.
func TestRules(t *testing.T) {
	for _, tt := range ruleTests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, 100, serial.Options{})
			for i, s := range tt.steps {
				runStep(t, f, i, s)
			}
		})
	}
}

func runStep(t *testing.T, f *fixture, i int, s step) {
	t.Helper()
	f.now = start.Add(time.Duration(i) * time.Second)
	before := f.runtime.Counts().Inspections["p"]
	f.runtime.Remove("p")
	if s.pod != "" || s.empty {
		f.runtime.SetPod(plegtest.Pod("p", s.pod))
	}
	f.runtime.SetListFault(plegtest.Fail(s.listErr))
	f.runtime.SetPodFault("p", nil)
	if s.fail {
		f.runtime.SetPodFault("p", plegtest.Fail(errInspect))
	}
	if s.request {
		f.pleg.RequestReinspect("p")
	}
	if err := f.pleg.Relist(t.Context()); !errors.Is(err, s.listErr) {
		t.Fatalf("step %d: Relist error = %v, want %v", i, err, s.listErr)
	}
	events := f.drain()
	if got := plegtest.Words(events...); got != s.want {
		t.Errorf("step %d (%q): events %q, want %q", i, s.pod, got, s.want)
	}
	for _, e := range events {
		if e.PodUID != "p" || e.PodName != "name-p" || e.PodNamespace != "ns" || !e.ObservedAt.Equal(f.now) {
			t.Errorf("step %d: event %+v does not name its pod and time", i, e)
		}
	}
	if got := f.runtime.Counts().Inspections["p"] - before; got != s.calls {
		t.Errorf("step %d: %d inspections, want %d", i, got, s.calls)
	}
	if _, err := f.pleg.Status("p"); (err != nil) != s.wantErr || err != nil && !errors.Is(err, errInspect) {
		t.Errorf("step %d: cached error %v, want one: %v", i, err, s.wantErr)
	}
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var errInspect = errors.New("inspection failed")

// start is the time of the first list; each further one is a second later.
var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// fixture is a PLEG on a runtime in memory; the test sets its clock.
type fixture struct {
	runtime *plegtest.Runtime
	pleg    *serial.PLEG
	events  chan pleg.Event
	now     time.Time
}

func newFixture(t *testing.T, buffer int, opts serial.Options) *fixture {
	t.Helper()
	f := &fixture{runtime: plegtest.New(), events: make(chan pleg.Event, buffer), now: start}
	opts.Events = f.events
	if opts.Clock == nil {
		opts.Clock = func() time.Time { return f.now }
	}
	p, err := serial.New(f.runtime, opts)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	f.pleg = p
	return f
}

func (f *fixture) drain() []pleg.Event { return kit.Drain(f.events) }

// apply applies a list with one pod, "p"; words that are empty are a list without pods.
func (f *fixture) apply(t *testing.T, words string) {
	t.Helper()
	var pods []*pleg.Pod
	if words != "" {
		pods = []*pleg.Pod{plegtest.Pod("p", words)}
	}
	f.pleg.Apply(t.Context(), start, pods)
}
