package view_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("CEST", 2*60*60) // texts have the time of the reader's zone
	goleak.VerifyTestMain(m)
}

// writes records each Write.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

func events() (all []fleet.Event) {
	at := time.Date(2026, 5, 4, 12, 30, 15, 678e6, time.UTC)
	const id = "0123456789abcdef0123456789abcdef"
	for _, ev := range []pleg.Event{
		{Seq: 1, Type: pleg.ContainerStarted, PodUID: "u1", PodName: "web-0", PodNamespace: "default", ContainerID: id, Sandbox: true, ObservedAt: at},
		{Seq: 2, Type: pleg.ContainerStarted, PodUID: "u1", PodName: "web-0", PodNamespace: "default", ContainerID: id, ContainerName: "app", Image: "registry.example/shop/app:1.2", StartedAt: at, ObservedAt: at},
		{
			Seq: 3, Type: pleg.ContainerDied, PodUID: "u1", PodName: "web-0", PodNamespace: "default",
			ContainerID: id, ContainerName: "app", Attempt: 12, ExitCode: new(int32(137)), Reason: "OOMKilled", ObservedAt: at,
			Image: "registry.example/shop/app:1.2", StartedAt: at.Add(-time.Hour), FinishedAt: at.Add(-time.Millisecond),
		},
		{
			Seq: 4, Type: pleg.ContainerDied, PodUID: "u1", PodName: "web-0", PodNamespace: "default",
			ContainerID: id, ContainerName: "app", ExitCode: new(int32(0)), Reason: "Completed", ObservedAt: at,
		},
		{
			Seq: 5, Type: pleg.ContainerRemoved, PodUID: "u2", PodName: "a-pod-with-a-name-that-is-longer-than-its-column", PodNamespace: "a-long-namespace",
			ContainerID: "short", ContainerName: "app", ObservedAt: at,
		},
		{Seq: 9, Type: pleg.PodSync, PodUID: "u1", PodName: "web-0", PodNamespace: "default", Missed: 1, ObservedAt: at},
		{Seq: 10, Type: pleg.PodSync, PodUID: "u3", ObservedAt: at},
		{Seq: 10, Type: pleg.Gap, Reason: pleg.HistoryTooShort, Missed: 7, Epoch: "e", ObservedAt: at},
		{Seq: 10, Type: pleg.Gap, Reason: pleg.OtherEpoch, Epoch: "e"},
		{Seq: 10, Type: pleg.Gap, Reason: pleg.Stopped, Missed: 3, Epoch: "e", ObservedAt: at},
		{Seq: 10, Type: pleg.Synced, Epoch: "e", ObservedAt: at},
		{
			Seq: 10, Type: pleg.ContainerStarted, PodUID: "u1", PodName: "web-0", PodNamespace: "default", ContainerID: id, ContainerName: "app",
			Replayed: true, ObservedAt: at,
		},
		{Seq: 11, Type: pleg.ContainerDied, PodUID: "u4", PodName: "b\x1bd", ContainerName: "xé\x1b[2Jy\n", ContainerID: "i", Reason: "ééééééééééé\u202e", ObservedAt: at},
	} {
		all = append(all, fleet.Event{Event: ev})
	}
	return all
}

func printAll[T any](t *testing.T, p *view.Printer[T], w *writes, values, fitting []T) string {
	t.Helper()
	kit.Must(t, p.Start(fitting...))
	for _, v := range values {
		kit.Must(t, p.Print(v))
	}
	return strings.Join(*w, "")
}

func printEvents(t *testing.T, o view.PrintOptions) writes {
	t.Helper()
	var w writes
	all := events()
	for n := range all {
		if o.Nodes && n%2 == 0 {
			all[n].Node = "worker-3.eu-west.example.com"
		}
	}
	printAll(t, view.EventPrinter(&w, o), &w, all, nil)
	return w
}

// printPods prints the pods at one time, however busy the machine is.
func printPods(t *testing.T, o view.PrintOptions) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var w writes
		all := pods()
		for n := range all {
			if o.Nodes && n%2 == 0 {
				all[n].Node = "worker-3.eu-west.example.com"
			}
		}
		text = printAll(t, view.PodPrinter(&w, o), &w, all, all)
	})
	return text
}

func TestFormatsMatchGoldenFiles(t *testing.T) {
	for golden, options := range map[string]view.PrintOptions{
		"text":   {Headers: true},
		"narrow": {Headers: true, Width: 80},
		"name":   {Format: view.Name, Headers: true},
		"color":  {Color: true},
		"wide":   {Format: view.Wide, Headers: true, Width: 40}, // wide cuts nothing
		"nodes":  {Headers: true, Width: 100, Nodes: true},
		"least":  {Headers: true, Width: 60, Nodes: true}, // the columns stay readable
	} {
		kit.Golden(t, "testdata/"+golden+".golden", strings.Join(printEvents(t, options), ""))
	}
	for golden, options := range map[string]view.PrintOptions{
		"pods":       {Format: view.Text, Headers: true},
		"podswide":   {Format: view.Wide, Headers: true, Width: 40},
		"podsname":   {Format: view.Name, Headers: true},
		"podscolor":  {Headers: true, Color: true, Width: 120},
		"podsnodes":  {Headers: true, Width: 100, Nodes: true},
		"podsnarrow": {Headers: true, Width: 60, Nodes: true},
	} {
		kit.Golden(t, "testdata/"+golden+".golden", printPods(t, options))
	}
}

// The header of a terminal shows the widths of the columns.
func TestHeaderFitsTheTerminal(t *testing.T) {
	const (
		usual  = "EVENT             NAMESPACE    POD                               CONTAINER         ATTEMPT  ID             DETAILS\n"
		narrow = "EVENT             POD                                           CONTAINER         DETAILS\n"
		pods   = "NAMESPACE    POD                               STATE     RUNNING  RESTARTS  AGE   KNOWN  DETAILS\n"
		node   = "NODE              "
	)
	for _, test := range []struct {
		width int
		nodes bool
		want  string
	}{
		{140, false, "TIME          " + usual + pods},
		{139, false, "TIME      " + narrow + pods},
		{158, true, "TIME          " + node + usual + node + pods},
		{157, true, "TIME      " + node + narrow + node + pods},
		{100, true, "TIME      NODE           EVENT             POD                   CONTAINER       DETAILS\n" +
			"NODE              NAMESPACE    POD                        STATE     RUNNING  RESTARTS  AGE   KNOWN\n"},
		{114, true, "TIME      NODE              EVENT             POD                            CONTAINER         DETAILS\n" + node + pods},
		{113, true, "TIME      NODE              EVENT             POD                           CONTAINER         DETAILS\n" + node + strings.TrimSuffix(pods, "  DETAILS\n") + "\n"},
		{79, true, "TIME      NODE    EVENT             POD                   CONTAINER  DETAILS\n" +
			"NODE    NAMESPACE  POD               STATE     RUNNING  RESTARTS  AGE   KNOWN\n"},
	} {
		var w writes
		o := view.PrintOptions{Headers: true, Width: test.width, Nodes: test.nodes}
		kit.Must(t, errors.Join(view.EventPrinter(&w, o).Start(), view.PodPrinter(&w, o).Start()))
		if got := strings.Join(w, ""); got != test.want {
			t.Errorf("%d columns, nodes %t:\n%s\nwant\n%s", test.width, test.nodes, got, test.want)
		}
	}
}

func TestJSONKeepsEveryField(t *testing.T) {
	want := events()
	for i, line := range printEvents(t, view.PrintOptions{Format: view.JSON, Headers: true}) {
		var got fleet.Event
		if err := json.Unmarshal([]byte(line), &got); err != nil || !reflect.DeepEqual(got, want[i]) {
			t.Errorf("event %d came back as %+v, %v, want %+v", i, got, err, want[i])
		}
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") || strings.Contains(line, `"node"`) || strings.ContainsAny(line, "\u202e\x1b") {
			t.Errorf("event %d is %q, want one line without a node, which cannot move the cursor", i, line)
		}
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestEachEventIsOneWrite(t *testing.T) {
	if all := strings.Join(view.Formats(), " "); all != "text wide name json" {
		t.Errorf("the formats are %s", all)
	}
	for _, f := range view.Formats() {
		options := view.PrintOptions{Format: view.Format(f)}
		if got, want := len(printEvents(t, options)), len(events()); got != want {
			t.Errorf("%s: %d writes for %d events", f, got, want)
		}
		if err := view.EventPrinter(broken{}, options).Print(events()[0]); !errors.Is(err, errBroken) {
			t.Errorf("%s: Print() = %v, want the writer's error", f, err)
		}
		options.Headers = true
		columns := options.Format == view.Text || options.Format == view.Wide
		if err := view.EventPrinter(broken{}, options).Start(); errors.Is(err, errBroken) != columns {
			t.Errorf("%s: Start() = %v, want the writer's error if there are columns", f, err)
		}
	}
}

// known returns the view of a status that is true until a time.
func known(status *pleg.PodStatus, at time.Time) view.Pod {
	return view.NewPod(cache.Entry{UID: status.UID, Status: status, Last: status, CurrentAsOf: at, LastAsOf: at})
}

func pods() []view.Pod {
	now := time.Now()
	status := &pleg.PodStatus{
		UID: "u1", Name: "web-0", Namespace: "default", IPs: []string{"10.0.0.7", "fd00::7"},
		Containers: []*pleg.ContainerStatus{
			{ID: "c2", Name: "app", Attempt: 2, State: pleg.StateRunning},
			{ID: "c1", Name: "app", Attempt: 1, State: pleg.StateExited, ExitCode: 1, Reason: "Error"},
			{ID: "c3", Name: "sidecar", State: pleg.StateExited, ExitCode: 137, Reason: "OOMKilled"},
		},
		Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: true, Labels: map[string]string{"app": "web"}, CreatedAt: now.Add(-2 * time.Hour)}},
	}
	busy := known(status, now.Add(-time.Second))
	whole := known(&pleg.PodStatus{
		UID: "u2", Name: "db-0", Namespace: "default",
		Containers: []*pleg.ContainerStatus{{ID: "c", Name: "db", State: pleg.StateRunning}},
		Sandboxes:  []*pleg.SandboxStatus{{ID: "s0", Attempt: 1, Ready: true}, {ID: "s", Ready: false}},
	}, now.Add(-3*time.Hour))
	failed := view.NewPod(cache.Entry{UID: "u3", Err: errors.New("container_status c: deadline\nexceeded /run/" + strings.Repeat("x", 60))})
	stale := view.NewPod(cache.Entry{UID: "u1", Err: errors.New("failed"), Last: status, CurrentAsOf: now, LastAsOf: now.Add(-12 * time.Second)})
	hung, slow, quarantined := stale, known(status, now.Add(-4*time.Second)), stale
	of := func(p view.Pod, s pleg.Status) view.Pod {
		s.At = now
		seen := view.Pods([]cache.Entry{{UID: p.UID}}, s)[0]
		p.Inspection = seen.Inspection
		p.SetFinding(*seen.Finding)
		return p
	}
	nginx := &pleg.Call{Method: "ContainerStatus", Container: "nginx"}
	hung = of(hung, pleg.Status{Overdue: []pleg.Inspection{{UID: "u1", Started: now.Add(-11 * time.Second), Hung: true, Call: nginx}}})
	slow = of(slow, pleg.Status{Overdue: []pleg.Inspection{{UID: "u1", Started: now.Add(-3 * time.Second), Call: &pleg.Call{Method: "PodSandboxStatus"}}}})
	quarantined = of(quarantined, pleg.Status{Quarantined: []pleg.Quarantined{{UID: "u1", Since: now.Add(-time.Minute), Hung: 3, NextTry: now.Add(4 * time.Second), Call: nginx}}})
	first := view.NewPod(cache.Entry{UID: "u4", Err: cache.ErrNotInspected, Listed: &pleg.Pod{
		UID: "u4", Namespace: "default", Name: "new-0",
		Containers: []*pleg.Container{{ID: "c", Name: "app", State: pleg.StateRunning}},
		Sandboxes:  []*pleg.Container{{ID: "s", State: pleg.StateRunning}},
	}})
	return []view.Pod{busy, whole, failed, stale, hung, slow, quarantined, first}
}

// TestTextFitsTheTerminal requires that no line is longer than the terminal is wide,
// whatever the values, and that a row of a wide terminal is not cut.
func TestTextFitsTheTerminal(t *testing.T) {
	for _, width := range []int{40, 60, 80, 100, 132, 200} {
		for _, nodes := range []bool{false, true} {
			options, least := view.PrintOptions{Headers: true, Width: width, Nodes: nodes}, 60
			if nodes {
				least += len("worker  ")
			}
			all := printPods(t, options)
			for line := range strings.SplitSeq(strings.Join(printEvents(t, options), "")+all, "\n") {
				if n := utf8.RuneCountInString(line); n > max(width, least) {
					t.Errorf("width %d, nodes %v: %d columns: %q", width, nodes, n, line)
				}
			}
			if text := strings.Join(printEvents(t, options), ""); width >= 100 && !regexp.MustCompile("ContainerDied .* exit 137, OOMKilled\n").MatchString(text) {
				t.Errorf("width %d, nodes %v: the details of an event have a line of their own:\n%s", width, nodes, text)
			}
			if width >= 80 && !strings.Contains(all, "(11s) in ContainerStatus of nginx") {
				t.Errorf("width %d: the cause is cut:\n%s", width, all)
			}
		}
	}
}

func TestCutLeavesOutTheMiddle(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"web-0", 5, "web-0"},
		{"web-0", 9, "web-0"},
		{"checkout-vt8qfgpkc-z7wqs", 11, "check…z7wqs"},
		{"abcdef", 4, "ab…f"},
		{"abcdef", 1, "…"},
		{"abcdef", 0, ""},
		{"äöüßéè", 3, "ä…è"},
	} {
		if got := view.Cut(test.text, test.width); got != test.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

// A cluster has a column of nodes. Of the newest containers, those that do not run are named, with what is known of their end.
func TestColumnsOfAPod(t *testing.T) {
	p := known(&pleg.PodStatus{UID: "u", Name: "web-0", Namespace: "shop", Containers: []*pleg.ContainerStatus{
		{ID: "1", Name: "a", State: pleg.StateCreated}, {ID: "2", Name: "b", State: pleg.StateExited, ExitCode: 3}, {ID: "3", Name: "c", State: pleg.StateRunning},
	}}, time.Now())
	ev := events()[1]
	var w writes
	for n, node := range []string{"n1", "n1", ""} {
		o := view.PrintOptions{Nodes: n > 0}
		p.Node, ev.Node = node, node
		kit.Must(t, errors.Join(view.PodPrinter(&w, o).Print(p), view.EventPrinter(&w, o).Print(ev)))
	}
	for n, want := range []string{
		"shop web-0 unknown 1/3 0 - ", "14:30:15.678 ContainerStarted default ", "n1 shop web-0 unknown 1/3 0 - ", "14:30:15.678 n1 ContainerStarted default ",
		"- shop web-0 unknown 1/3 0 - ", "14:30:15.678 - ContainerStarted default ",
	} {
		if got := strings.Join(strings.Fields(w[n]), " "); !strings.HasPrefix(got, want) || n%2 == 0 && !strings.HasSuffix(got, " a created, b exited 3") {
			t.Errorf("line %d is %q, want %q", n, got, want)
		}
	}
}
