package doctor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestVerdictNamesTheCulprit compares the first line of reports, which names the pod, the container,
// the call and its age. It contains the daemon's facts, unless the examination shows that the pod
// answers again. Package verdict tests the other cases.
func TestVerdictNamesTheCulprit(t *testing.T) {
	const well = "OK: the node is healthy, its 2 pods answer"
	// The call of the pod web-0.
	hang, slow := simruntime.Fault{RPC: "ContainerStatus", Hang: true}, simruntime.Fault{RPC: "ContainerStatus", Latency: 2 * time.Second}
	quarantined := func(s *pleg.Status, uid pleg.PodUID) {
		call := &pleg.Call{Method: "ContainerStatus", Container: "nginx"}
		s.Quarantined = []pleg.Quarantined{{UID: uid, Namespace: "shop", Name: "web-0", Since: s.At.Add(-20 * time.Minute), Hung: 9, Call: call}}
	}
	for name, test := range map[string]struct {
		fault  *simruntime.Fault               // nil for none
		daemon func(*pleg.Status, pleg.PodUID) // changes its status; nil without a daemon
		want   string
	}{
		"healthy": {nil, nil, well},
		"all hang": {
			&simruntime.Fault{RPC: "ContainerStatus", Hang: true}, nil,
			"PROBLEM: shop/db-0 and 1 more pod hang for at least 10s in ContainerStatus of postgres",
		},
		"a container is slow":    {&slow, nil, well},
		"everything is slow":     {&simruntime.Fault{Latency: 2100 * time.Millisecond}, nil, "WARNING: the runtime is slow for at least 7.5s: the list of all pods takes up to 2.1s"},
		"the daemon knows since": {&hang, quarantined, "PROBLEM: shop/web-0 hangs since 01:40 (20m, 9 attempts) in ContainerStatus of nginx; the other pod answers"},
		"a list of the daemon hangs": {nil, func(s *pleg.Status, _ pleg.PodUID) {
			s.Relist.Started, s.Relist.Call = s.At.Add(-time.Minute), &pleg.Call{Method: "ListContainers"}
		}, "PROBLEM: the runtime hangs since 01:59 (60s) in ListContainers"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt := simruntime.New(simruntime.Options{})
			web := addPod(rt, "web-0", "nginx")
			addPod(rt, "db-0", "postgres")
			if f := test.fault; f != nil {
				if f == &hang || f == &slow {
					f.PodUID = web.UID
				}
				rt.Inject(*f)
			}
			o := serve(t, rt)
			if test.daemon != nil {
				o.Ask = func(context.Context) *doctor.Daemon {
					status := pleg.Status{At: time.Now(), Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Period: time.Second, Pods: 2}}
					test.daemon(&status, web.UID)
					return doctor.NewDaemon("/run/d", status)
				}
			}
			o.Watch += 500 * time.Millisecond // between two lists
			r := doctor.Examine(t.Context(), o)
			if r.Verdict != test.want || len(r.Findings) > 1 { // the containers are slow because the runtime is slow
				t.Errorf("verdict %q of %d findings, want %q alone", r.Verdict, len(r.Findings), test.want)
			}
			if text := r.Lasting(); strings.Contains(text, "02:00") || strings.Contains(text, "7.5s") || test.want == well && text != well {
				t.Errorf("%q changes with each examination", text)
			}
			if test.want != well {
				golden(t, r)
			}
		})
	}
}

// For the command, a runtime that fails now is a problem. For a daemon that has seen it fail for a second, it
// is still a warning. The merged finding is a problem with the evidence of both.
func TestOwnProblemBesideTheWarningOfTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simruntime.New(simruntime.Options{})
		addPod(rt, "web-0", "nginx")
		o := serve(t, rt)
		client, err := cri.New(o.Endpoint, cri.Options{DialOptions: o.DialOptions})
		kit.Must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		p := kit.New(t, pipeline.Options{Runtime: client})
		p.StartBetweenLists(t)
		rt.Inject(simruntime.Fault{Code: codes.Internal})
		kit.Relist(1)
		before := verdict.Of(p.Look())
		if before.Severity != verdict.Warning || before.Findings[0].Cause != verdict.RuntimeFails {
			t.Fatalf("the daemon says %q, want a warning", before.Text)
		}
		o.Ask = func(ctx context.Context) *doctor.Daemon {
			status, _ := p.Status(ctx)
			return doctor.NewDaemon("/run/d", status)
		}
		r := doctor.Examine(t.Context(), o)
		if len(r.Findings) != 1 || !strings.HasPrefix(r.Verdict, "PROBLEM: the list of all pods fails") || !strings.Contains(r.Findings[0].Evidence, "; ") {
			t.Errorf("verdict %q of %+v, want one problem with both evidences", r.Verdict, r.Findings)
		}
	})
}

func addPod(rt *simruntime.Runtime, name, container string) *pleg.PodStatus {
	return rt.AddPod(simruntime.PodSpec{Namespace: "shop", Name: name, Containers: []pleg.ContainerStatus{{Name: container}}})
}

// TestDaemonKnowsTheOutage requires one finding for one outage, with the age that the daemon
// knows.
func TestDaemonKnowsTheOutage(t *testing.T) {
	now := time.Now()
	refused := fmt.Errorf("list pods: %w: refused", pleg.ErrUnavailable)
	status := pleg.Status{At: now, Healthy: true, Relist: pleg.RelistStatus{Success: now, Failing: now.Add(-40 * time.Second), Failures: 40, Err: refused}}
	o := options("unix:///nonexistent/s")
	o.Ask = func(context.Context) *doctor.Daemon { return doctor.NewDaemon("/run/d", status) }
	r := doctor.Examine(t.Context(), o)
	if len(r.Findings) != 1 || !strings.Contains(r.Verdict, "(40s, 40 attempts): refused") {
		t.Errorf("verdict %q, %d findings, want one", r.Verdict, len(r.Findings))
	}
	check(t, r, verdict.RuntimeStopped, verdict.Problem, "refused; unix:///nonexistent/s: the socket does not exist")
	if alone := doctor.Judge(doctor.NewDaemon("/run/d", status)); alone.Verdict != r.Verdict {
		t.Errorf("without an examination: %q, want %q", alone.Verdict, r.Verdict)
	}
}

// TestTextIsWrapped requires that prose fits the terminal and that the verdict has a color.
func TestTextIsWrapped(t *testing.T) {
	d := doctor.NewDaemon("/run/d", pleg.Status{Healthy: true, Quarantined: []pleg.Quarantined{{UID: "u1", Namespace: "shop", Name: "web-0"}}})
	var text bytes.Buffer
	if err := doctor.Judge(d).Print(&text, doctor.TextOptions{Width: 60, Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), "\x1b[31mPROBLEM\x1b[0m: shop/web-0 hangs") {
		t.Errorf("text %q, want a red verdict first", &text)
	}
	requireWidth(t, strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(text.String()), 60)
}

func requireWidth(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("%d columns, want at most %d: %q", n, width, line)
		}
	}
}

// TestLineFitsThePlugin uses names that are as long as they may be, and a long reason.
func TestLineFitsThePlugin(t *testing.T) {
	name := strings.Repeat("p", 253)
	hung := pleg.Quarantined{UID: "u1", Namespace: strings.Repeat("n", 63), Name: name, Call: &pleg.Call{Method: "ContainerStatus", Container: "app"}}
	failed := pleg.Failed{UID: "u1", Namespace: "shop", Name: name, Since: time.Unix(1, 0), Err: errors.New("broken: " + strings.Repeat("x\u00e9", 300))}
	for want, s := range map[string]pleg.Status{ // a whole line, or the beginning of one that is cut
		"PROBLEM: " + strings.Repeat("n", 50) + "…" + strings.Repeat("p", 49) + " hangs in ContainerStatus of app":                           {Healthy: true, Quarantined: []pleg.Quarantined{hung}},
		"PROBLEM: shop/" + strings.Repeat("p", 45) + "…" + strings.Repeat("p", 49) + " cannot be inspected since Jan 1 02:00: broken: xéxé…": {Healthy: true, Failed: []pleg.Failed{failed}},
		"PROBLEM: u1 cannot be inspected: xxxx…": {Healthy: true, Failed: []pleg.Failed{{UID: "u1", Err: errors.New(strings.Repeat("x", 300))}}},
	} {
		r := doctor.Judge(doctor.NewDaemon("/run/d", s))
		line := r.Lasting()
		if before, cut := strings.CutSuffix(want, "…"); line != want && (!cut || len(line) < 298 || !strings.Contains(line, "é") && len(line) < 299 || len(line) >= 300 || !utf8.ValidString(line) || !strings.HasPrefix(line, before) || !strings.HasSuffix(line, "…")) {
			t.Errorf("%d bytes: %q, want less than 300 and %q", len(line), line, want)
		}
		if whole := r.Findings[0].Subject; whole != r.Findings[0].Pod {
			t.Errorf("the line has changed the report, which names %q", whole)
		}
	}
}

// TestDenied uses a runtime that this process may not ask: that says nothing about the node, unless a daemon
// knows more.
func TestDenied(t *testing.T) {
	denied := verdict.Finding{Cause: verdict.NoPermission, Severity: verdict.Problem, Summary: "the runtime cannot be asked"}
	if r := doctor.Judge(nil, denied); r.Denied() == nil || r.Healthy() {
		t.Errorf("nobody knows more, and it is a problem of the node: %s", r.Verdict)
	}
	if f := doctor.Judge(nil, verdict.Finding{Cause: verdict.RuntimeStopped}).Denied(); f != nil {
		t.Errorf("a runtime that is stopped: %+v", f)
	}
	if r := doctor.Judge(doctor.NewDaemon("/run/d", pleg.Status{Healthy: true, Relist: pleg.RelistStatus{Success: time.Now()}}), denied); r.Denied() != nil || !r.Healthy() || r.Verdict != "WARNING: the runtime cannot be asked" {
		t.Errorf("a daemon knows more: %s", r.Verdict)
	}
}

// TestDoctorCannotConnect uses a runtime that only the doctor cannot reach: a daemon that lists pods knows better, one
// that has not listed any does not.
func TestDoctorCannotConnect(t *testing.T) {
	stopped := verdict.Finding{Cause: verdict.RuntimeStopped, Severity: verdict.Problem, Subject: "the runtime", What: "is stopped", Evidence: "s: refused", Advice: "start it"}
	for cause, success := range map[verdict.Cause]time.Time{verdict.Fallback: time.Now(), verdict.RuntimeStopped: {}} {
		r := doctor.Judge(doctor.NewDaemon("/run/d", pleg.Status{Healthy: true, Relist: pleg.RelistStatus{Success: success}}), stopped)
		if len(r.Findings) != 1 || r.Findings[0].Cause != cause || r.Healthy() != (cause == verdict.Fallback) {
			t.Errorf("last list at %v: %q, %+v; want %s", success, r.Verdict, r.Findings, cause)
		}
		want, advice := "PROBLEM: the runtime is stopped", "start it"
		if cause == verdict.Fallback {
			want, advice = "WARNING: the daemon reaches the runtime, this command does not: s: refused", cause.Advice()
		}
		if r.Verdict != want || r.Findings[0].Advice != advice {
			t.Errorf("%q, advice %q, want %q and %q", r.Verdict, r.Findings[0].Advice, want, advice)
		}
	}
}

// TestDaemonThatEnded uses a runtime at an address that only the daemon knew: no finding says that the
// runtime is stopped.
func TestDaemonThatEnded(t *testing.T) {
	r := doctor.Judge(doctor.SilentDaemon("/run/d", "it has ended", nil))
	const want = "PROBLEM: the daemon at /run/d does not answer: it has ended; no runtime is at a usual address"
	if r.Verdict != want || len(r.Findings) != 1 || strings.Contains(r.Findings[0].Advice, "start the runtime") || time.Since(r.At) > time.Minute {
		t.Errorf("at %v verdict %q, %+v; want %q", r.At, r.Verdict, r.Findings, want)
	}
	var text strings.Builder
	kit.Must(t, r.Print(&text, doctor.TextOptions{}))
	if !strings.HasSuffix(text.String(), "\n\nDaemon      /run/d, it does not answer: it has ended\n") {
		t.Errorf("the report is %q, want the daemon alone at its end", &text)
	}
}

// A runtime that answers is no reason why its daemon does not.
func TestSilentDaemonBesideAHealthyRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := serve(t, simruntime.New(simruntime.Options{}))
		o.Ask = func(context.Context) *doctor.Daemon { return doctor.SilentDaemon("/run/d", "refused", nil) }
		r := doctor.Examine(t.Context(), o)
		check(t, r, verdict.DaemonSilent, verdict.Warning)
		golden(t, r)
	})
}

func TestEndpointOfADaemon(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]*doctor.Daemon{"unix:///s": doctor.NewDaemon("/run/d", pleg.Status{Endpoint: "unix:///s"}), "": nil} {
		if got := d.Endpoint(); got != want {
			t.Errorf("the endpoint is %q, want %q", got, want)
		}
	}
}

// The state of a process that is able to answer does not explain why a daemon does not.
func TestProcessOfASilentDaemon(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"S": "refused", "R": "refused", "D": "its process 7 waits in the kernel (state D)",
		"T": "its process 7 is stopped (state T)", "t": "its process 7 is stopped (state t)",
	} {
		d := doctor.SilentDaemon("/run/d", "refused", &nodestate.Process{PID: 7, State: state})
		if d.Silent != want || d.Frozen() != (state == "T" || state == "t") {
			t.Errorf("state %s: %q, frozen %t, want %q", state, d.Silent, d.Frozen(), want)
		}
		advice := verdict.DaemonSilent.Advice()
		if d.Frozen() {
			advice = "continue it (kill -CONT 7)"
		}
		if f, _ := errors.AsType[verdict.Error](d.Err()); f.Cause != verdict.DaemonSilent || f.Advice != advice {
			t.Errorf("state %s: %s, advice %q, want %q", state, f.Cause, f.Advice, advice)
		}
		if f, _ := errors.AsType[verdict.Error](d.Err()); f.Severity != verdict.Problem || f.Summary != "the daemon at /run/d does not answer: "+want {
			t.Errorf("state %s: %s: %s", state, f.Severity, f.Summary)
		}
	}
}

// Advice follows the finding that it is about. No text forges another line.
func TestEachFindingHasItsAdvice(t *testing.T) {
	t.Parallel()
	r := doctor.Judge(nil,
		verdict.Finding{Cause: "c", Severity: verdict.Problem, Summary: "one", Advice: "this"},
		verdict.Finding{Cause: "b", Severity: verdict.Warning, Summary: "t\nwo", Advice: "th\nat"},
		verdict.Finding{Cause: "a", Severity: verdict.Warning, Summary: "three"},
	)
	var text strings.Builder
	kit.Must(t, r.Print(&text, doctor.TextOptions{}))
	if want := "PROBLEM: one\n  Do: this\nAlso warning: t?wo\n  Do: th?at\nAlso warning: three\n"; strings.TrimSpace(text.String())+"\n" != want {
		t.Errorf("the report is %q, want %q", &text, want)
	}
}

// Two findings with one cause are one, as severe as the worse of them.
func TestOneFindingOfACause(t *testing.T) {
	t.Parallel()
	first := verdict.Finding{Cause: "c", Severity: verdict.Warning, Summary: "one", Evidence: "e1"}
	for _, severity := range []verdict.Severity{verdict.Warning, verdict.Problem} {
		r := doctor.Judge(nil, first, verdict.Finding{Cause: "c", Severity: severity, Summary: "two", Evidence: "e2"})
		if f := r.Findings[0]; len(r.Findings) != 1 || f.Severity != severity || f.Summary != "one" || f.Evidence != "e1; e2" {
			t.Errorf("a warning and a %s are %+v", severity, r.Findings)
		}
	}
}

// The figures of a report follow its verdict.
func TestReport(t *testing.T) {
	t.Parallel()
	r := doctor.Report{
		Verdict: "OK: well", TookSeconds: 10.004, Endpoint: "unix:///s", Source: "the test", Runtime: "containerd v2", NoDaemon: "there is\nnone",
		Counts: doctor.Counts{Pods: 1, Sandboxes: 2, Ready: 3, Containers: 4, Running: 5, Exited: 6},
		Lists:  []host.List{{Method: "ListPodSandbox", Bytes: 1 << 20, LimitBytes: 16 << 20}, {Method: "ListContainers", Bytes: 1 << 10, LimitBytes: 1<<20 - 1}, {Method: "Other", Bytes: 1<<10 - 1, LimitBytes: 1 << 10}},
		Node: doctor.Node{
			IOPressure: new(11.0), CPUPressure: new(12.0), MemoryPressure: new(13.0),
			Facts: host.Facts{ImageFilesystem: "/images", UsedPercent: new(14.0), InodesPercent: new(15.0)},
		},
	}
	var text strings.Builder
	kit.Must(t, r.Print(&text, doctor.TextOptions{}))
	const want = `OK: well

Runtime     containerd v2 at unix:///s (from the test), watched for 10s
Daemon      not asked: there is?none
Pods        1; sandboxes: 2 (3 ready); containers: 4 (5 running, 6 exited)
List size   1.0 MiB of 16.0 MiB, 6.2 % (ListPodSandbox)
List size   1.0 KiB of 1024.0 KiB, 0.1 % (ListContainers)
List size   1023 B of 1.0 KiB, 99.9 % (Other)
Disk        /images is 14 % full, 15 % of its inodes are in use
Pressure    processes waited for disk 11 %, CPU 12 %, memory 13 % of the last 10 s
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &text, want)
	}
	for _, missing := range []**float64{&r.Node.IOPressure, &r.Node.CPUPressure, &r.Node.MemoryPressure, &r.Node.UsedPercent} {
		known := *missing
		*missing = nil
		text.Reset()
		kit.Must(t, r.Print(&text, doctor.TextOptions{}))
		if lines := strings.Count(text.String(), "\n"); lines != strings.Count(want, "\n")-1 {
			t.Errorf("without a figure:\n%s", &text)
		}
		*missing = known
	}
}
