package doctor_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/doctor"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestVerdictNamesTheCulprit compares the first line of reports, which has the pod, the
// container, the call and its age.
func TestVerdictNamesTheCulprit(t *testing.T) {
	for name, test := range map[string]struct {
		breakIt func(t *testing.T, rt *simruntime.Runtime, web, db simruntime.Pod)
		want    string
	}{
		"healthy": {func(*testing.T, *simruntime.Runtime, simruntime.Pod, simruntime.Pod) {}, "OK: no known cause of an unhealthy PLEG fits; 2 pods answer, the lists take 0s"},
		"a container hangs": {func(t *testing.T, rt *simruntime.Runtime, web, _ simruntime.Pod) {
			inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", ID: web.Containers[0].ID, Hang: true})
		}, "PROBLEM: shop/web-0 (nginx): ContainerStatus hangs, 5s so far; the other pod answers"},
		"a sandbox hangs": {func(t *testing.T, rt *simruntime.Runtime, web, _ simruntime.Pod) {
			inject(t, rt, simruntime.Fault{RPC: "PodSandboxStatus", PodUID: web.UID, Hang: true})
		}, "PROBLEM: shop/web-0 (sandbox): PodSandboxStatus hangs, 5s so far; the other pod answers"},
		"all hang": {func(t *testing.T, rt *simruntime.Runtime, _, _ simruntime.Pod) {
			inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", Hang: true})
		}, "PROBLEM: shop/db-0 (postgres) and 1 more pod: ContainerStatus hangs, 5s so far"},
		"a container is slow": {func(t *testing.T, rt *simruntime.Runtime, web, _ simruntime.Pod) {
			inject(t, rt, simruntime.Fault{RPC: "ContainerStatus", ID: web.Containers[0].ID, Latency: simruntime.Latency{P50: 2 * time.Second}})
		}, "WARNING: shop/web-0 (nginx): ContainerStatus takes 2s; the other pod answers"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := simulate(t, simruntime.Options{})
				web, db := addPod(t, rt, "web-0", "nginx"), addPod(t, rt, "db-0", "postgres")
				test.breakIt(t, rt, web, db)
				o := serve(t, rt)
				o.CallTimeout = 5 * time.Second
				if r := doctor.Examine(t.Context(), o); r.Verdict != test.want {
					t.Errorf("verdict %q, want %q", r.Verdict, test.want)
				}
			})
		})
	}
}

func addPod(t *testing.T, rt *simruntime.Runtime, name, container string) simruntime.Pod {
	t.Helper()
	pod, err := rt.AddPod(simruntime.PodSpec{Namespace: "shop", Name: name, Containers: []simruntime.ContainerSpec{{Name: container}}})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestDaemonKnowsForHowLong requires that what the daemon knows is in the verdict, unless
// the examination shows that the pod answers again.
func TestDaemonKnowsForHowLong(t *testing.T) {
	now := time.Now()
	call := &pleg.Call{Method: "ContainerStatus", Container: "nginx"}
	overdue := pleg.Inspection{UID: "u1", Namespace: "shop", Name: "web-0", Started: now.Add(-3 * time.Second), Hung: true, Call: call}
	quarantined := pleg.Quarantined{UID: "u1", Namespace: "shop", Name: "web-0", Since: now.Add(-20 * time.Minute), Hung: 9}
	healthy := pleg.Status{At: now, Healthy: true, Relist: pleg.RelistStatus{Success: now.Add(-time.Second), Pods: 110}}
	for name, test := range map[string]struct {
		change func(*pleg.Status)
		want   string
	}{
		"healthy": {func(*pleg.Status) {}, "OK: the daemon is healthy and none of its 110 pods hangs"},
		"hangs now": {
			func(s *pleg.Status) { s.Overdue = []pleg.Inspection{overdue} },
			"PROBLEM: shop/web-0 (nginx): ContainerStatus hangs, 3s so far; the other 109 pods answer",
		},
		"hangs again": {
			func(s *pleg.Status) {
				s.Overdue, s.Quarantined = []pleg.Inspection{overdue}, []pleg.Quarantined{quarantined}
			},
			"PROBLEM: shop/web-0 (nginx): ContainerStatus hangs, 20m so far; the other 109 pods answer",
		},
		"hung before": {
			func(s *pleg.Status) { s.Quarantined = []pleg.Quarantined{quarantined} },
			"PROBLEM: shop/web-0: its inspection hangs, 20m so far; the other 109 pods answer",
		},
		"lists fail": {func(s *pleg.Status) {
			s.Relist.Failures, s.Relist.Failing, s.Relist.Err = 40, now.Add(-40*time.Second), errors.New("list pods: refused")
		}, "WARNING: the daemon at /run/d: its lists have failed for 40s: list pods: refused"},
		"not healthy": {
			func(s *pleg.Status) { s.Healthy, s.Err = false, errors.New("pleg was last seen active 4m ago") },
			"PROBLEM: the daemon at /run/d: not healthy: pleg was last seen active 4m ago",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := healthy
			test.change(&status)
			d := doctor.NewDaemon("/run/d", status, 2*time.Second)
			if r := doctor.Judge(d); r.Verdict != test.want {
				t.Errorf("verdict %q, want %q", r.Verdict, test.want)
			}
		})
	}
	t.Run("answers again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := simulate(t, simruntime.Options{})
			addPod(t, rt, "web-0", "nginx")
			status := healthy
			status.Quarantined = []pleg.Quarantined{quarantined}
			o := serve(t, rt)
			o.Daemon = doctor.NewDaemon("/run/d", status, time.Second)
			if r := doctor.Examine(t.Context(), o); !r.Healthy() {
				t.Errorf("verdict %q, want that the pod answers", r.Verdict)
			}
		})
	})
}

// TestTextIsWrapped requires that prose fits the terminal and that the verdict has a color.
func TestTextIsWrapped(t *testing.T) {
	d := doctor.NewDaemon("/run/d", pleg.Status{Healthy: true, Quarantined: []pleg.Quarantined{{UID: "u1", Namespace: "shop", Name: "web-0"}}}, time.Second)
	var text bytes.Buffer
	if err := doctor.Judge(d).Print(&text, doctor.TextOptions{Width: 60, Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), "\x1b[31mPROBLEM\x1b[0m: shop/web-0: ") {
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

// TestTablesFit has long names, a long error, and more calls than a screen has lines.
func TestTablesFit(t *testing.T) {
	r := doctor.Report{
		Verdict: "PROBLEM: many calls hang", Endpoint: "unix:///run/containerd/containerd.sock", Runtime: "containerd 2.4.2", Source: "well-known socket",
		Calls: []doctor.Call{{Method: "ContainerStatus", Count: 14, Hung: 14, Error: "rpc error: code = DeadlineExceeded desc = context deadline exceeded"}},
		Lists: []doctor.ListSize{{Method: "ListContainers", Bytes: 1 << 20, LimitBytes: 16 << 20}},
	}
	for n := range 14 {
		r.Hung = append(r.Hung, doctor.ItemCall{
			Method: "ContainerStatus", Pod: fmt.Sprintf("a-namespace/a-deployment-with-a-long-name-7d4b9c6f5d-x2x%02d", n), Container: "node-exporter",
			ID: strings.Repeat("0123456789abcdef", 4), Seconds: 5.01,
		})
	}
	for _, width := range []int{80, 0} {
		var text bytes.Buffer
		if err := r.Print(&text, doctor.TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		if width > 0 {
			requireWidth(t, text.String(), width)
		} else if !strings.Contains(text.String(), r.Hung[0].Pod) || !strings.Contains(text.String(), r.Calls[0].Error) {
			t.Errorf("a name or an error is cut without a terminal:\n%s", &text)
		}
		for _, want := range []string{"x2x09", "and 4 more: -o json has all"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("width %d: no %q in\n%s", width, want, &text)
			}
		}
	}
}
