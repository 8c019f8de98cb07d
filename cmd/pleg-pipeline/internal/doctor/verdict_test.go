package doctor_test

import (
	"bytes"
	"errors"
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
	plain := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(text.String())
	for line := range strings.Lines(plain) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 60 {
			t.Errorf("%d columns, want at most 60: %q", n, line)
		}
	}
}
