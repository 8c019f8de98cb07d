package cli_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// quiet matches an empty output, or the notice of "pods" on a busy machine.
var quiet = regexp.MustCompile(`^(pleg-pipeline: WARNING: the runtime is slow [^\n]*\n)?$`)

// TestHabitsOfKubectl runs commands as users of kubectl type them. Each command ends by itself.
func TestHabitsOfKubectl(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	const names = `^([a-z]+/[a-z0-9-]+\n)`
	for _, test := range []struct{ args, want string }{
		{"pods -A -n nowhere -o name", names + "{2}$"},
		{"pods --sort-by=age -o name", names + "{2}$"},
		{"pods -A", `^NAMESPACE +POD .*\n([a-z-]+ +[a-z0-9-]+ +ready +2/2 +0 +[0-9.]+m?s +[0-9.]+m?s\n){2}$`},
		{"pods -o json", `^({"uid":.*"total":2,.*"currentAsOf":".*\n){2}$`},
		{"events -A --since 10m --follow=false --no-sandboxes -o name", names + "{4}$"},
		{"events --replay -f=false --no-sandboxes -o name", names + "{4}$"},
		{"events --replay -f=false --no-sandboxes -l app -o name", names + "{4}$"},
		{"events --since 0s -f=false -o name", "^$"},
		{"events -f=false -o name", "^$"},
		{"events --replay -f=false -l app --type containerDIED -o name", "^$"},
	} {
		args := append(strings.Fields(test.args), "--connect", socket)
		if code, stdout, stderr := run(t, args...); code != cli.ExitOK || !quiet.MatchString(stderr) || !regexp.MustCompile(test.want).MatchString(stdout) {
			t.Errorf("%s = %d %q and stderr %q, want %s", test.args, code, stdout, stderr, test.want)
		}
	}
	for args, want := range map[string]string{ // unlike kubectl, which exits with 0
		"pods -n nowhere --no-headers":               "no pod is in the namespace nowhere\n",
		"pods -l app=none":                           "no pod matches the selector app=none\n",
		"events --replay --follow=false -l app=none": "no pod matches the selector app=none\n",
		"pods -n nowhere -l app=none":                "no pod in the namespace nowhere matches the selector app=none\n",
	} {
		if code, _, stderr := run(t, append(strings.Fields(args), "--connect", socket)...); code != cli.ExitFailure || !strings.HasSuffix(stderr, want) {
			t.Errorf("%s = %d and stderr %q, want %q", args, code, stderr, want)
		}
	}
	code, stdout, _ := run(t, "version", "-o", "json")
	if want := regexp.MustCompile(`^\{"commit":".*","goVersion":"go.+","platform":".+/.+","version":".+"\}\n$`); code != cli.ExitOK || !want.MatchString(stdout) {
		t.Errorf("version -o json = %d %q, want %v", code, stdout, want)
	}
}

// TestPodsBeginWithTheTable: notices follow the table, also those about the command's own pipeline.
func TestPodsBeginWithTheTable(t *testing.T) {
	t.Parallel()
	all := newTranscript()
	code := cli.Execute(t.Context(), cli.Process{Args: []string{"pods", "-r", simulated(t, 3)}, Out: all, Err: all})
	text := all.String()
	if code != cli.ExitOK || !strings.HasPrefix(text, "NAMESPACE") || strings.Count(text, " 2/2 ") != 3 || !strings.Contains(text, "connected to") {
		t.Errorf("exit code %d and %q, want the table first", code, text)
	}
}

// The pods of a cluster: the worst first, unless the user sorts them, and what is missing after those that are known.
func TestPodsOfACluster(t *testing.T) {
	pod := func(name, node string, of *fleet.Finding) view.Pod {
		status := &pleg.PodStatus{UID: pleg.PodUID("u-" + name), Name: name, Namespace: "shop"}
		return cli.PodOfFleet(fleet.Pod{Node: node, Finding: of, Entry: cache.Entry{UID: status.UID, Status: status}})
	}
	hangs := func(problem string) *fleet.Finding {
		return &fleet.Finding{Severity: "problem", Cause: "hung container", Subject: "shop/x", What: "hangs", Detail: problem}
	}
	pods := []view.Pod{pod("b", "n2", nil), pod("c", "n9", hangs(" in ContainerStatus")), pod("a", "n3", nil)}
	missing := errors.New("node n4 is missing")
	const table = "NODE NAMESPACE POD STATE RUNNING RESTARTS AGE KNOWN DETAILS"
	const silent = "pleg-pipeline: PROBLEM: node n5 is silent\n <nil>"
	for _, test := range []struct {
		args      string
		pods      []view.Pod
		missing   error
		out, said string
	}{
		{"", pods, nil, table + " n9 shop c hung 0/0 0 - - hangs in ContainerStatus, stale for - n2 shop b unknown 0/0 0 - - n3 shop a unknown 0/0 0 - -", silent},
		{"--sort-by name -o name", pods, nil, "shop/b shop/a shop/c", silent},
		{"-o name", pods, missing, "shop/c shop/b shop/a", " node n4 is missing"},
		{"-o name", nil, missing, "", " node n4 is missing"},
		{"-o name", nil, nil, "", silent},
		{"-n none", pods, missing, table, " node n4 is missing"},
		{"-n none", pods, nil, table, " no pod is in the namespace none"},
	} {
		out, said := newTranscript(), newTranscript()
		state := top.State{Pods: slices.Clone(test.pods), Cluster: &top.Cluster{Problem: "node n5 is silent"}}
		err := cli.PrintPods(cli.Process{Out: out, Err: said}, state, test.missing, append(strings.Fields(test.args), "--fleet", "nats://h", "--cluster", "c")...)
		if got, text := strings.Join(strings.Fields(out.String()), " "), fmt.Sprint(said, err); got != test.out || text != test.said {
			t.Errorf("pods %s: %q and %q, want %q and %q", test.args, got, text, test.out, test.said)
		}
	}
}

// TestPodsOfADaemon lists, sorts and selects the pods of a daemon, which sends them in another order.
func TestPodsOfADaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
		pod := func(name string, restarts uint32, age, known time.Duration) *plegv1.Pod {
			return &plegv1.Pod{Uid: "u-" + name, CurrentAsOf: before(known), LastAsOf: before(known), Status: &plegv1.PodStatus{
				Uid: "u-" + name, Name: name, Namespace: "shop",
				Containers: []*plegv1.ContainerStatus{{Id: "c-" + name, Name: "app", Attempt: restarts, State: plegv1.State_STATE_RUNNING}},
				Sandboxes:  []*plegv1.SandboxStatus{{Id: "s-" + name, Ready: true, CreatedAt: before(age)}},
			}}
		}
		process := with(nil)
		process.Dial = serveHostile(t, "", &hostile.Daemon{OnList: sendPods(
			pod("c", 3, time.Minute, 3*time.Second), pod("b", 5, 72*time.Hour, 9*time.Second), pod("a", 0, 3*time.Hour, 4*time.Second),
		)})
		for args, want := range map[string]string{
			"":                           "NAMESPACE POD STATE RUNNING RESTARTS AGE KNOWN DETAILS shop a ready 1/1 0 3h 4.0s shop b ready 1/1 5 3d 9.0s shop c ready 1/1 3 60s 3.0s",
			"-o name":                    "shop/a shop/b shop/c",
			"-o name --sort-by restarts": "shop/b shop/c shop/a",
			"-o name --sort-by age":      "shop/c shop/a shop/b",
			"-o name --sort-by known":    "shop/b shop/a shop/c",
			"-o name b":                  "shop/b",
			"-o name shop/b u-c":         "shop/b shop/c",
		} {
			code, stdout, stderr := execute(t, process, append([]string{"pods", "--connect", "socket"}, strings.Fields(args)...)...)
			if got := strings.Join(strings.Fields(stdout), " "); code != cli.ExitOK || got != want {
				t.Errorf("pods %s = %d %q and stderr %q, want %q", args, code, got, stderr, want)
			}
		}
	})
}
