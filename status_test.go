package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// The golden file has what a scrape shows beside the values.
func TestMetricsAreWellFormed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{Events: pipeline.EventsAuto})
		r.Events(t, 0)
		r.Runtime.Set("a", "c=running /s=running")
		r.Start(t)
		kit.Relist(1)
		if problems, err := testutil.GatherAndLint(r.Metrics); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		families, err := r.Metrics.Gather()
		kit.Must(t, err)
		var text strings.Builder
		for _, f := range families {
			fmt.Fprintf(&text, "%s (%s): %s\n", f.GetName(), strings.ToLower(f.GetType().String()), f.GetHelp())
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					fmt.Fprintf(&text, "\t%s=%s\n", l.GetName(), l.GetValue())
				}
				for _, b := range m.GetHistogram().GetBucket() {
					fmt.Fprintf(&text, "\tup to %v\n", b.GetUpperBound())
				}
			}
		}
		kit.Golden(t, "testdata/metrics.txt", text.String())
	})
}

// New that fails leaves no metric behind, so that a second try can succeed, here with
// other names.
func TestFailedNewRegistersNothing(t *testing.T) {
	all := &recorder{}
	_, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Events: pipeline.EventsAuto, Registerer: all})
	kit.Must(t, err)
	for _, name := range all.names {
		name, _, _ = strings.Cut(name, "{")
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Taken."}))
		_, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Events: pipeline.EventsAuto, Registerer: reg})
		if errors.Unwrap(err) == nil || !strings.HasPrefix(err.Error(), "new pipeline: register metric") || !strings.Contains(err.Error(), `fqName: "`+name+`"`) {
			t.Errorf("New = %v although %s is taken", err, name)
		}
		if families, err := reg.Gather(); err != nil || len(families) != 1 {
			t.Errorf("after New has failed: %d metrics, %v, want only %s", len(families), err, name)
		}
	}
	for _, name := range []string{"pleg_relist_duration_seconds", "pleg_discarded_events_total"} {
		reg := prometheus.NewPedanticRegistry()
		taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Taken."})
		reg.MustRegister(taken)
		o := pipeline.Options{Runtime: plegtest.New(), Registerer: reg}
		if _, err := pipeline.New(o); err == nil {
			t.Errorf("New = nil although %s is taken", name)
		}
		if families, err := reg.Gather(); err != nil || len(families) != 1 {
			t.Errorf("after New has failed: %d metrics, %v, want only %s", len(families), err, name)
		}
		o.KubeletMetricNames = true
		if _, err := pipeline.New(o); err != nil {
			t.Errorf("the second New = %v", err)
		}
	}
}

// A program that restarts its pipeline, its server and its client of the runtime uses one registry
// for the process.
func TestNextPipelineUsesTheRegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 2 {
		p, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Registerer: prometheus.WrapRegistererWithPrefix("agent_", reg)})
		kit.Must(t, err)
		_, err = pipeline.New(pipeline.Options{Runtime: plegtest.New(), Registerer: prometheus.WrapRegistererWithPrefix("agent_", reg)})
		if err == nil || strings.Count(err.Error(), "agent_pleg_") != 1 || !strings.HasSuffix(err.Error(), "(does another pipeline use this registerer? wrap it with prometheus.WrapRegistererWith)") {
			t.Errorf("New beside a pipeline = %v, want an error that names one metric, once, and the reason", err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errors.New("the program ends")) // Run returns no error, whatever the cause
		kit.Must(t, p.Run(ctx))
		if families, err := reg.Gather(); err != nil || len(families) != 0 {
			t.Errorf("after Run has returned: %d metrics, %v", len(families), err)
		}
	}
}

// recorder records the registered metrics as name{labels}, in order.
type recorder struct {
	prometheus.Registerer
	names []string
}

// Unregister implements [prometheus.Registerer].
func (*recorder) Unregister(prometheus.Collector) bool { return true }

var descriptor = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}$`)

func (d *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		m := descriptor.FindStringSubmatch(desc.String())
		name := m[1]
		if m[2] != "" {
			name += "{" + m[2] + "}"
		}
		d.names = append(d.names, name)
	}
	return nil
}

// registered returns the names of all metrics.
func registered(t *testing.T, kubelet bool) []string {
	t.Helper()
	d := &recorder{}
	p, err := pipeline.New(pipeline.Options{Runtime: plegtest.New(), Events: pipeline.EventsAuto, Registerer: d, KubeletMetricNames: kubelet})
	kit.Must(t, err)
	client, err := cri.New("unix:///nowhere", cri.Options{Registerer: d, KubeletMetricNames: kubelet})
	kit.Must(t, err)
	_ = client.Close()
	if _, err := server.New(p, server.Options{Registerer: d}); err != nil {
		t.Fatal(err)
	}
	return d.names
}

var documentedRow = regexp.MustCompile("(?m)^\\| `(pleg_[^`]+)` \\| (?:`(kubelet_[^`]+)`)?")

func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/metrics.md")
	kit.Must(t, err)
	documented := make(map[string]string) // our name to the kubelet's name
	for _, row := range documentedRow.FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(row[1], "pleg_fleet_") && !strings.HasPrefix(row[1], "pleg_otlp_") { // fleet and otlp test their own
			documented[row[1]] = row[2]
		}
	}
	kubelets := registered(t, true)
	for n, name := range registered(t, false) {
		kubelet, ok := documented[name]
		if !ok {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
		want := name
		if kubelet != "" {
			want = kubelet
		}
		if kubelets[n] != want {
			t.Errorf("%s is %s under the kubelet's names, docs/metrics.md says %q", name, kubelets[n], kubelet)
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("docs/metrics.md has metrics that do not exist: %s", strings.Join(slices.Sorted(maps.Keys(documented)), ", "))
	}
}

// reporting is a runtime that reports on itself.
type reporting struct {
	pleg.Runtime
	calls  atomic.Pointer[[]pleg.Call]
	probes atomic.Int64
}

func (r *reporting) set(calls ...pleg.Call) { r.calls.Store(&calls) }

func (r *reporting) Probe(context.Context) error {
	r.probes.Add(1)
	return nil
}

var errFallback = errors.New("lists work in portions")

func (r *reporting) Report() pleg.Report {
	return pleg.Report{
		Endpoint: "unix:///runtime.sock", Degraded: errFallback, Calls: *r.calls.Load(),
		Troubles: []pleg.Trouble{{Cause: "clock", What: "is wrong"}, {Cause: "network plugin", What: "is away"}},
		Details: nodestate.State{
			Process: &nodestate.Process{PID: 41, Name: "containerd", State: "T"},
			Stuck:   []nodestate.Stuck{{UID: "stuck"}}, Unread: []nodestate.Unread{{Bytes: 1}}, Disk: &nodestate.Disk{Used: 97},
		},
	}
}

// The status contains the runtime's report: its address and fallbacks, its process if that is in
// trouble, and the call that a list or an inspection waits for.
func TestStatusHasWhatTheRuntimeReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		rt := &reporting{Runtime: runtime.Basic()}
		rt.set()
		var log kit.Log
		r := kit.New(t, pipeline.Options{Runtime: rt, RelistPeriod: 9 * time.Second, InspectTimeout: 5 * time.Second, Logger: log.Logger()})
		runtime.Set("a", "c=running")
		if s := r.Look(); s.Healthy || s.Degraded != nil {
			t.Errorf("status %+v, want no fallback beside what is worse", s)
		}
		r.Start(t)
		time.Sleep(8*time.Second + time.Millisecond)
		s := r.Look()
		n := nodestate.Of(s.Details)
		if !s.At.Equal(time.Now()) || !s.Healthy || !slices.Equal(s.Troubles, rt.Report().Troubles) {
			t.Errorf("status %+v, want this time and the troubles", s)
		}
		if s.Endpoint != rt.Report().Endpoint || !errors.Is(s.Degraded, errFallback) || len(n.Stuck) != 1 || len(n.Unread) != 1 || n.Disk == nil || n.Process != nil || s.At.Sub(n.Since.Degraded).Round(time.Second) != 7*time.Second {
			t.Errorf("status %+v, want the address, the fallback and the stuck pod, and no process while lists succeed", s)
		}
		if n := rt.probes.Load(); n != 4 {
			t.Errorf("%d probes in 8 s without a list, want 4", n)
		}

		runtime.SetListFault(plegtest.Hang)
		rt.set(pleg.Call{Method: "ContainerStatus", PodUID: "a"}, pleg.Call{Method: "ListContainers"})
		time.Sleep(2 * time.Second)
		if s := r.Look(); s.Relist.Call.String() != "ListContainers" || nodestate.Of(s.Details).Process == nil || nodestate.Of(s.Details).Process.PID != 41 {
			t.Errorf("status %+v, want the call of the list and the process of the runtime", s)
		}
		time.Sleep(10 * time.Second)
		log.RequireLines(t, 1, "the runtime hangs")
		runtime.SetListFault(plegtest.Fail(errors.New("broken")))
		time.Sleep(pipeline.DefaultListTimeout)
		if s := r.Look(); s.Relist.Failures == 0 || !s.Relist.Started.IsZero() || s.Relist.Call != nil || nodestate.Of(s.Details).Process == nil {
			t.Errorf("status %+v, want the process of a runtime whose last list failed", s)
		}
		runtime.SetListFault(nil)
		time.Sleep(10 * time.Second)
		if s := r.Look(); nodestate.Of(s.Details).Process != nil {
			t.Errorf("status %+v, want no process", s)
		}
		runtime.SetPodFault("a", plegtest.Hang)
		runtime.Set("a", "c=exited")
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if s := r.Look(); len(s.Overdue) > 0 && s.Relist.Started.IsZero() {
				if nodestate.Of(s.Details).Process == nil {
					t.Errorf("status %+v, want the process of a runtime that does not answer an inspection", s)
				}
				return
			}
		}
		t.Error("no inspection is overdue")
	})
}

// Pods wait, and no inspection ends: the error names the pods.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{RelistThreshold: 20 * time.Second})
		require := func(want string) {
			t.Helper()
			ok, err := r.Healthy()
			s := r.Look()
			if text := fmt.Sprint(err); ok != (want == "") || want != "" && text != want || s.Healthy != ok || fmt.Sprint(s.Err) != text {
				t.Errorf("Healthy = %v, %v, and in the status %v, %v, want %q", ok, err, s.Healthy, s.Err, want)
			}
		}
		for n := range 5 {
			pod := pleg.PodUID(fmt.Sprint("p", n))
			r.Runtime.Set(pod, fmt.Sprintf("c%d=running", n))
			r.Runtime.SetPodFault(pod, plegtest.Hang)
			if n == 0 {
				r.Start(t)
				time.Sleep(time.Minute + 500*time.Millisecond)
				require("") // a single pod
			}
		}
		time.Sleep(20*time.Second + 500*time.Millisecond) // since the next list
		require("")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		const threshold = "; threshold is 20s; these pods wait: ns/name-p0, ns/name-p1, ns/name-p2, 2 more"
		require("no inspection has succeeded for 20s" + threshold)
		for _, step := range [][2]string{{"p3", "21s; threshold is 20s; these pods wait: ns/name-p0, ns/name-p1, ns/name-p2, 1 more"}, {"p4", "22s; threshold is 20s; these pods wait: ns/name-p0, ns/name-p1, ns/name-p2"}} {
			r.Runtime.Remove(pleg.PodUID(step[0]))
			time.Sleep(time.Second)
			require("no inspection has succeeded for " + step[1])
		}
		r.Runtime.SetPodFault("p2", plegtest.Fail(errors.New("broken"))) // at once: the runtime answers
		r.RequestRelist("p2")
		time.Sleep(15 * time.Second)
		require("")
	})
}

// The numbers of a status differ from each other.
func TestStatusCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{Inspectors: 7})
		for n := range 5 {
			pod := pleg.PodUID(fmt.Sprint("p", n))
			r.Runtime.Set(pod, fmt.Sprintf("c%d=running", n))
			if n < 2 {
				r.Runtime.SetPodFault(pod, plegtest.Hang)
			} else {
				r.Runtime.SetPodFault(pod, plegtest.Delay(time.Second))
			}
		}
		before := r.Look()
		if before.Healthy || before.Err == nil || before.Relist.Pods != 0 || before.InspectionTook != 0 {
			t.Errorf("before the first list: %+v", before)
		}
		kit.RequireMetric(t, r.Metrics, 0, "pleg_healthy")
		r.Start(t)
		synctest.Wait()
		if s := r.Look(); s.InFlight != 5 || s.Waiting != 5 || s.Relist.Pods != 5 || len(s.Overdue) != 0 {
			t.Errorf("while all are inspected: %+v", s)
		}
		for _, want := range []int{0, 2} { // older than a second
			time.Sleep(time.Second/2 - 1 + time.Duration(want)) // a second in all
			synctest.Wait()
			if overdue := r.Look().Overdue; len(overdue) != want {
				t.Errorf("overdue are %+v, want %d", overdue, want)
			}
		}
		time.Sleep(2500 * time.Millisecond)
		s := r.Look()
		if s.Inspectors != 7 || s.InFlight != 2 || s.Waiting != 2 || s.Relist.Pods != 5 || len(s.Overdue) != 2 || s.InspectionTook != time.Second || !s.Healthy || s.Err != nil {
			t.Errorf("while two hang: %+v", s)
		}
		if s.Overdue[0].UID != "p0" || s.Overdue[1].UID != "p1" || len(s.Failed) != 0 || len(s.Quarantined) != 0 {
			t.Errorf("overdue %+v, failed %+v, quarantined %+v", s.Overdue, s.Failed, s.Quarantined)
		}
		kit.RequireMetric(t, r.Metrics, 1, "pleg_healthy")
		time.Sleep(time.Minute)
		if took := r.Look().InspectionTook; took != 0 {
			t.Errorf("a minute later inspections take %v", took)
		}
	})
}

// A Report that hangs delays neither Status nor the end of Run, which names it.
func TestReportThatHangsBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		runtime := plegtest.New()
		runtime.Set("a", "c=running")
		r := kit.New(t, pipeline.Options{Runtime: hangingReporter{runtime.Basic(), release}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		for range 10 {
			time.Sleep(time.Second)
			began := time.Now()
			s := r.Look()
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("Status took %v", took)
			}
			if s.Relist.Pods != 1 {
				t.Errorf("status %+v, want what the pipeline knows", s)
			}
		}
		cancelled := time.Now()
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "Report") {
			t.Errorf("Run = %v, want that the Report keeps running", err)
		}
		if took := time.Since(cancelled); took > 50*time.Millisecond {
			t.Errorf("Run returned after %v", took)
		}
	})
}

type hangingReporter struct {
	pleg.Runtime
	release chan struct{}
}

func (r hangingReporter) Report() pleg.Report {
	<-r.release
	return pleg.Report{}
}

// For a quarantined pod, the call of the attempt in flight is named. Between two attempts the call
// of the last attempt is named.
func TestCallOfAQuarantinedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		rt := &reporting{Runtime: runtime.Basic()}
		rt.set()
		r := kit.New(t, pipeline.Options{Runtime: rt, InspectTimeout: 5 * time.Second})
		runtime.Set("a", "c=running")
		runtime.SetPodFault("a", func(ctx context.Context) error {
			<-ctx.Done()
			return &pleg.CallError{Call: pleg.Call{Method: "PodSandboxStatus", PodUID: "a"}, Err: ctx.Err()}
		})
		requireCall := func(at, want string) {
			t.Helper()
			synctest.Wait()
			s := r.Look()
			if len(s.Quarantined) != 1 || s.Quarantined[0].Call == nil || s.Quarantined[0].Call.Method != want {
				t.Errorf("%s: quarantined %+v, want the call %s", at, s.Quarantined, want)
			}
			if len(s.Failed) > 0 {
				t.Errorf("%s: %+v has failed, but hangs", at, s.Failed)
			}
		}
		r.Start(t)
		time.Sleep(5 * time.Second)
		requireCall("after the first attempt", "PodSandboxStatus")
		first := r.Look()
		rt.set(pleg.Call{Method: "ContainerStatus", PodUID: "a"})
		for _, q := range r.Look().Quarantined {
			time.Sleep(time.Until(q.NextTry) + 100*time.Millisecond)
		}
		requireCall("during the second", "ContainerStatus")
		if call := first.Quarantined[0].Call; call.Method != "PodSandboxStatus" {
			t.Errorf("the call of the first status has become %s", call.Method)
		}
		time.Sleep(3 * time.Second)
		if s := r.Look(); len(s.Overdue) != 1 || s.Overdue[0].Call == nil || s.Overdue[0].Call.Method != "ContainerStatus" {
			t.Errorf("overdue %+v, want the call ContainerStatus", s.Overdue)
		} else if rt.set(); r.Look().Overdue[0].Call != nil || s.Overdue[0].Call == nil {
			t.Errorf("overdue %+v, want the call of the time of each status", s.Overdue)
		}
	})
}

// Each of several pods is reported with its own call.
func TestCallsOfSeveralPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := plegtest.New()
		rt := &reporting{Runtime: runtime.Basic()}
		calls := []pleg.Call{{Method: "ContainerStatus", PodUID: "a"}, {Method: "PodSandboxStatus", PodUID: "b"}}
		rt.set(calls...)
		r := kit.New(t, pipeline.Options{Runtime: rt, InspectTimeout: 5 * time.Second})
		runtime.Set("a", "c=running")
		runtime.Set("b", "d=running")
		runtime.SetInspectFault(plegtest.Hang)
		r.StartBetweenLists(t)
		got := make(map[pleg.PodUID]string)
		time.Sleep(2 * time.Second)
		for _, i := range r.Look().Overdue {
			got[i.UID] = fmt.Sprint(i.Call)
		}
		time.Sleep(3 * time.Second)
		for _, q := range r.Look().Quarantined {
			got["again "+q.UID] = fmt.Sprint(q.Call)
		}
		for _, want := range calls {
			if got[want.PodUID] != want.Method || got["again "+want.PodUID] != want.Method {
				t.Errorf("the calls are %v, want %s of pod %s, twice", got, want.Method, want.PodUID)
			}
		}
	})
}

// Each pod that fails is named, also behind one that hangs.
func TestSeveralFailingPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		kit.Fill(r.Runtime, 4, "c=running")
		r.Runtime.SetInspectFault(plegtest.Fail(errors.New("broken")))
		r.StartBetweenLists(t)
		r.Runtime.SetInspectFault(nil)
		for n, uid := range kit.UIDs(4) {
			r.Runtime.SetPodFault(uid, []plegtest.Fault{plegtest.Hang, plegtest.Fail(errors.New("broken"))}[min(n, 1)])
		}
		kit.Relist(3)
		var got []pleg.PodUID
		for _, f := range r.Look().Failed {
			got = append(got, f.UID)
		}
		if !slices.Equal(got, kit.UIDs(4)[1:]) {
			t.Errorf("failed are %v, want all but the first, which hangs", got)
		}
	})
}

// A pod whose inspections fail at once is named for as long as it fails.
func TestFailingPodIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{InspectTimeout: 5 * time.Second})
		r.Runtime.Set("well", "c=running")
		r.Runtime.Set("fails", "c=running")
		r.StartBetweenLists(t)
		r.Runtime.SetPodFault("fails", plegtest.Fail(errors.New("corrupt metadata")))
		r.Runtime.Set("fails", "c=exited")
		kit.Relist(1)
		first := r.Look().Failed[0]
		began := first.Since
		if first.Namespace != "ns" || first.Name != "name-fails" || first.Err == nil || first.Err.Error() != "inspect pod ns/name-fails (fails): corrupt metadata" || !began.Equal(r.Look().Relist.Success) {
			t.Errorf("failed %+v since the list at %v", first, r.Look().Relist.Success)
		}
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			s := r.Look()
			if len(s.Failed) != 1 || s.Failed[0].UID != "fails" || !s.Failed[0].Since.Equal(began) || s.Waiting != 1 || len(r.Cache().Pending()) != 1 {
				t.Fatalf("after %v: failed %+v, %d wait", time.Since(began), s.Failed, s.Waiting)
			}
		}
		r.Runtime.SetPodFault("fails", nil)
		kit.Relist(1)
		if s := r.Look(); len(s.Failed) > 0 || s.Waiting > 0 {
			t.Errorf("after a success: failed %+v, %d wait", s.Failed, s.Waiting)
		}
		r.Runtime.SetPodFault("fails", plegtest.Fail(errors.New("corrupt metadata")))
		r.Runtime.SetPodFault("well", plegtest.Hang)
		r.Runtime.Set("fails", "c=running")
		r.Runtime.Set("well", "c=exited")
		time.Sleep(4 * time.Second)
		if s := r.Look(); len(s.Failed) != 1 || len(s.Overdue) != 1 || s.Overdue[0].UID != "well" {
			t.Errorf("failed %+v, overdue %+v, want one each", s.Failed, s.Overdue)
		}
		time.Sleep(3 * time.Second)
		if s := r.Look(); len(s.Failed) != 1 || s.Failed[0].UID != "fails" || len(s.Quarantined) != 1 || s.Quarantined[0].UID != "well" {
			t.Errorf("failed %+v, quarantined %+v, want one each", s.Failed, s.Quarantined)
		}
		r.Runtime.SetPodFault("fails", plegtest.Hang)
		time.Sleep(3 * time.Second)
		if s := r.Look(); len(s.Failed) != 0 || !slices.ContainsFunc(s.Overdue, func(i pleg.Inspection) bool { return i.UID == "fails" }) {
			t.Errorf("failed %+v, overdue %+v, want that the pod hangs now", s.Failed, s.Overdue)
		}
	})
}

// The methods for pods, by UID and of all.
func TestPodsByUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		if pods, at, err := r.Pods(t.Context()); pods != nil || at != (pleg.Position{}) || !errors.Is(err, pleg.ErrNotSynced) || err.Error() != "list pods: "+pleg.ErrNotSynced.Error() {
			t.Errorf("before the first list: %+v, %v, %v", pods, at, err)
		}
		for _, uid := range []pleg.PodUID{"b", "a", "c"} {
			r.Runtime.Set(uid, string(uid)+"1=running")
		}
		statuses, err := r.Subscribe(pleg.SubscribeOptions{Statuses: true})
		kit.Must(t, err)
		r.StartBetweenLists(t)
		for want, uids := range map[string][]pleg.PodUID{"a b c": nil, "a b": {"b", "aa", "a", "b"}, "": {"none"}} {
			pods, at, err := r.Pods(t.Context(), uids...)
			var got []string
			for _, pod := range pods {
				if got = append(got, string(pod.UID)); pod.Status == nil || pod.Status.UID != pod.UID {
					t.Errorf("pod %s has the status %+v", pod.UID, pod.Status)
				}
			}
			if strings.Join(got, " ") != want || at != (pleg.Position{Epoch: r.Epoch(), Seq: 3}) || err != nil {
				t.Errorf("pods %v of %v at %v, %v, want %s", got, uids, at, err, want)
			}
		}
		if s, err := r.PodStatus(t.Context(), "none", time.Time{}); s != nil || !errors.Is(err, pleg.ErrUnknownPod) || err.Error() != "status of pod none: "+pleg.ErrUnknownPod.Error() {
			t.Errorf("the status of an unknown pod is %+v, %v", s, err)
		}
		r.Runtime.Remove("a")
		kit.Relist(1)
		for _, ev := range kit.Read(t, statuses) {
			gone := ev.PodUID == "a" // when the event is read
			if ev.Status == nil || ev.Status.UID != ev.PodUID || (len(ev.Status.Containers) == 0) != gone {
				t.Errorf("%+v has the status %+v", ev, ev.Status)
			}
		}
	})
}

// Watch subscribes when its range begins, and closes the subscription when it ends.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		r.Runtime.Set("a", "c=running d=running")
		r.Start(t)
		kit.Relist(1)
		events := r.Watch(t.Context(), pleg.SubscribeOptions{Replay: true})
		kit.RequireMetric(t, r.Metrics, 0, "pleg_subscribers")
		for range 2 {
			for ev, err := range events {
				synctest.Wait()
				kit.RequireMetric(t, r.Metrics, 1, "pleg_subscribers")
				if err != nil || ev.ContainerID != "c" || !ev.Replayed {
					t.Errorf("%+v, %v, want the start of c", ev, err)
				}
				break
			}
			synctest.Wait()
			kit.RequireMetric(t, r.Metrics, 0, "pleg_subscribers")
		}
		bad := 0
		for ev, err := range r.Watch(t.Context(), pleg.SubscribeOptions{After: pleg.Position{Seq: 1}}) {
			if bad++; !errors.Is(err, pleg.ErrInvalidOption) || ev.Type != "" {
				t.Errorf("%+v, %v, want the error of the option", ev, err)
			}
		}
		if bad != 1 {
			t.Errorf("%d errors, want one", bad)
		}
	})
}
