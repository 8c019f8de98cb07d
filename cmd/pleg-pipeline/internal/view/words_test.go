package view_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// TestWordsOf lists the words that the page and top show for events.
func TestWordsOf(t *testing.T) {
	at := time.Unix(1000, 0)
	ran := pleg.Event{Type: pleg.ContainerDied, ContainerName: "app", StartedAt: at, FinishedAt: at.Add(3 * time.Minute)}
	killed, well, sandbox := ran, ran, pleg.Event{Type: pleg.ContainerDied, ContainerName: "web-0", Sandbox: true}
	killed.ExitCode, killed.Reason = new(int32(137)), "OOMKilled"
	well.ExitCode, well.Reason = new(int32(0)), "Completed"
	failed := ran
	failed.ExitCode, failed.Reason = new(int32(1)), "Error"
	for _, test := range []struct {
		event                          pleg.Event
		severity, what, container, why string
	}{
		{killed, "bad", "died 137", "app", "OOMKilled, ran 3m"},
		{well, "notice", "died 0", "app", "ran 3m"},
		{failed, "bad", "died 1", "app", "ran 3m"},
		{sandbox, "notice", "died", "(sandbox)", ""},
		{pleg.Event{Type: pleg.ContainerStarted, ContainerName: "app", StartedAt: at}, "good", "started", "app", ""},
		{pleg.Event{Type: pleg.ContainerDied, ContainerName: "app", StartedAt: at, FinishedAt: at}, "notice", "died", "app", "ran 0ms"},
		{pleg.Event{Type: pleg.ContainerDied, ContainerName: "app", FinishedAt: at}, "notice", "died", "app", ""},
		{pleg.Event{Type: pleg.ContainerDied, ContainerName: "app", StartedAt: at, FinishedAt: at.Add(-1)}, "notice", "died", "app", ""},
		{pleg.Event{Type: pleg.PodSync, Missed: 4}, "notice", "sync", "", "4 events missed"},
		{pleg.Event{Type: pleg.PodSync, Missed: 1}, "notice", "sync", "", "1 event missed"},
		{pleg.Event{Type: pleg.Gap, Missed: 1, Reason: pleg.Stopped}, "bad", "gap", "", "1 event is missing: the daemon ended before they were read; the pods are current"},
		{pleg.Event{Type: pleg.Gap, Missed: 7, Reason: pleg.OtherEpoch}, "bad", "gap", "", "7 events are missing: the daemon was restarted; the pods are current"},
		{pleg.Event{Type: pleg.Gap, Reason: fleet.NodeNew}, "bad", "gap", "", "the node is new; the pods are current"},
		{pleg.Event{Type: pleg.Gap, Reason: fleet.NodeGone}, "bad", "gap", "", "the node is gone, with its pods; the pods are current"},
		{pleg.Event{Type: "ContainerFrozen", ContainerName: "app"}, "notice", "containerfrozen", "app", ""},
	} {
		test.event.PodUID, test.event.PodNamespace, test.event.PodName = "u", "shop", "web-0"
		if w := view.WordsOf(test.event); w.Severity != test.severity || w.What != test.what || w.Container != test.container || w.Why != test.why || w.Pod != "shop/web-0" {
			t.Errorf("%s: %s, %q, %q, %q of %s, want %+v", test.event.Type, w.Severity, w.What, w.Container, w.Why, w.Pod, test)
		}
	}
	object, err := json.Marshal(view.WordsOf(pleg.Event{Seq: 3, Type: pleg.ContainerDied, PodUID: "u", PodNamespace: "shop", PodName: "web-0", Sandbox: true, Reason: "Lost"}))
	if want := `"severity":"notice","what":"died","why":"Lost","pod":"shop/web-0","container":"(sandbox)"}`; err != nil || !strings.HasSuffix(string(object), want) || !strings.HasPrefix(string(object), `{"seq":3,`) {
		t.Errorf("%v: %s, want %s at its end", err, object, want)
	}
	for _, typ := range eventtype.Types() {
		if w := view.WordsOf(pleg.Event{Type: typ, PodUID: "u"}); cmp.Or(w.What, w.Severity) == "" || w.Pod != "u" {
			t.Errorf("%s has the words %+v", typ, w)
		}
	}
}

func TestStateOfALookup(t *testing.T) {
	removed := time.Date(2026, 11, 27, 7, 0, 0, 0, time.Local)
	exited := pleg.ContainerStatus{State: pleg.StateExited, FinishedAt: removed}
	for want, c := range map[string]lookup.Container{
		"attempt    0\nstate      running":                                         {ContainerStatus: pleg.ContainerStatus{State: pleg.StateRunning}},
		"attempt    0\nstate      exited with code 0":                              {ContainerStatus: exited},
		"attempt    1\nstate      exited with code 0":                              {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited, Attempt: 1}},
		"attempt    0\nstate      exited with code 0, removed 2026-11-27 07:00:00": {ContainerStatus: exited, RemovedAt: removed},
		"attempt    0\nstate      exited with code 3 Error":                        {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited, ExitCode: 3, Reason: "Error"}},
		"attempt    0\nstate      exited with code 4, removed 2026-11-27 07:00:00": {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited, ExitCode: 4}, RemovedAt: removed},
		"sandbox    web?0\nattempt    0\nstate      exited":                        {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited, Name: "web\n0"}, Sandbox: true},
		"attempt    0\nstate      exited, removed 2026-11-27 07:00:00":             {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited}, RemovedAt: removed},
	} {
		var text strings.Builder
		if err := view.NewLookup(c, pleg.Status{}).Print(&text); err != nil || text.String() != "pod        /\n"+want+"\n" {
			t.Errorf("%v:\n%s\nwant %q at its end", err, &text, want)
		}
	}
}

// TestLookup prints everything that is known of a container.
func TestLookup(t *testing.T) {
	at := time.Date(2026, 11, 27, 5, 0, 0, 0, time.UTC)
	l := view.NewLookup(lookup.Container{
		ContainerStatus: pleg.ContainerStatus{ID: "c1", Name: "app", Attempt: 2, State: pleg.StateCreated, Image: "app:1", ImageRef: "app@sha256:1", LogPath: "/log"},
		PodUID:          "u", PodName: "web-0", PodNamespace: "shop", PodLabels: map[string]string{"l": "1"}, PodAnnotations: map[string]string{"a": "2"},
		CgroupPath: "/kubepods/c1", RemovedAt: at,
	}, pleg.Status{})
	var text strings.Builder
	const want = `pod        shop/web-0
uid        u
container  app
id         c1
attempt    2
state      created, removed 2026-11-27 07:00:00
image      app:1
digest     app@sha256:1
log        /log
cgroup     /kubepods/c1
`
	if err := l.Print(&text); err != nil || text.String() != want {
		t.Errorf("%v:\n%s\nwant\n%s", err, &text, want)
	}
	if err := l.Print(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("Print() = %v, want the error of the writer", err)
	}
	object, err := json.Marshal(l)
	if want := `"sandbox":false,"podUID":"u","podName":"web-0","podNamespace":"shop","podLabels":{"l":"1"},"podAnnotations":{"a":"2"},"removedAt":"2026-11-27T05:00:00Z","cgroupPath":"/kubepods/c1"}`; err != nil || !strings.HasSuffix(string(object), want) {
		t.Errorf("%v: %s, want %s at its end", err, object, want)
	}
}

// TestFindingOfALookup looks up a container of a pod whose shim is stopped, and one of another pod. Both are
// removed in the end.
func TestFindingOfALookup(t *testing.T) {
	now := time.Now()
	status := pleg.Status{At: now, Details: nodestate.State{Stuck: []nodestate.Stuck{{UID: "u", Namespace: "shop", Name: "web-0", Since: now.Add(-time.Minute), Shim: &nodestate.Process{PID: 7, Name: "containerd-shim", State: "T"}}}}}
	for uid, want := range map[pleg.PodUID]string{"u": "finding    PROBLEM: shop/web-0 has a hung shim since", "other": ""} {
		var text strings.Builder
		l := view.NewLookup(lookup.Container{PodUID: uid}, status)
		object, _ := json.Marshal(l)
		if strings.Contains(string(object), `,"finding":{"cause":"hung shim",`) != (want != "") {
			t.Errorf("the pod %s is %s", uid, object)
		}
		if err := l.Print(&text); err != nil || strings.Contains(text.String(), "finding") != (want != "") || !strings.Contains(text.String(), want) || (l.Finding != nil) != (want != "") {
			t.Errorf("%v:\n%s\nwant %q", err, &text, want)
		}
		if l := view.NewLookup(lookup.Container{PodUID: uid, RemovedAt: now}, status); (l.Finding != nil) != (want != "") {
			t.Errorf("a removed container of the pod %s has the finding %+v", uid, l.Finding)
		}
	}
}

// TestOldDeath prints a death long before the list that showed it, and a new one.
func TestOldDeath(t *testing.T) {
	listed := time.Date(2026, 11, 27, 7, 0, 0, 0, time.Local)
	for want, finished := range map[string]time.Time{
		"exit 3, finished 2026-11-20 07:00:00": listed.Add(-7 * 24 * time.Hour), "exit 3, finished 2026-11-27 06:59:00": listed.Add(-time.Minute), "exit 3": listed.Add(1 - time.Minute),
	} {
		var text strings.Builder
		ev := fleet.Event{Event: pleg.Event{Type: pleg.ContainerDied, ExitCode: new(int32(3)), ObservedAt: listed, FinishedAt: finished}}
		if err := view.EventPrinter(&text, view.PrintOptions{}).Print(ev); err != nil || !strings.HasSuffix(text.String(), "  "+want+"\n") {
			t.Errorf("%v: %q, want %q", err, text.String(), want)
		}
	}
}

// A pod is stale once it was not current for a second.
func TestStaleFor(t *testing.T) {
	for age, want := range map[time.Duration]string{time.Second: "cannot be inspected: broken, stale for 1.0s\n", time.Second - 1: "cannot be inspected: broken\n"} {
		synctest.Test(t, func(t *testing.T) {
			var text strings.Builder
			p := view.NewPod(cache.Entry{UID: "u", Err: errors.New("broken"), Last: &pleg.PodStatus{}, LastAsOf: time.Now().Add(-age)})
			if err := view.PodPrinter(&text, view.PrintOptions{}).Print(p); err != nil || !strings.HasSuffix(text.String(), "  "+want) {
				t.Errorf("%v: %q, want %q after %v", err, text.String(), want, age)
			}
		})
	}
}

// TestSharedNames prints pods. Three share a name: their UIDs are printed too.
func TestSharedNames(t *testing.T) {
	var entries []cache.Entry
	for _, name := range []string{"shop web-0", "shop web-1", "shop web-1", "shop web-1", "other web-0"} {
		uid := pleg.PodUID(fmt.Sprint("uid-", len(entries)))
		namespace, name, _ := strings.Cut(name, " ")
		entries = append(entries, cache.Entry{UID: uid, Last: &pleg.PodStatus{UID: uid, Namespace: namespace, Name: name}})
	}
	for n, p := range view.Pods(entries, pleg.Status{}) {
		if got, want := p.Label(), []string{"web-0", "web-1 (uid-1)", "web-1 (uid-2)", "web-1 (uid-3)", "web-0"}[n]; got != want {
			t.Errorf("pod %d: %q, want %q", n, got, want)
		}
	}
}

// Columns lose only as much as is needed, the widest first, down to their least width.
func TestFit(t *testing.T) {
	for width, want := range map[int]string{50: "10 20 8", 44: "10 20 8", 43: "10 19 8", 34: "10 10 8", 33: "9 10 8", 32: "9 9 8", 26: "6 6 8", 25: "6 5 8", 9: "6 5 8"} {
		columns := []view.Column[int]{{Width: 10, Least: 6}, {Width: 20, Least: 5}, {Width: 8}, {Width: 99}}
		view.Fit(columns, 2, width)
		if got := fmt.Sprint(columns[0].Width, columns[1].Width, columns[2].Width); got != want {
			t.Errorf("at %d columns: %s, want %s", width, got, want)
		}
	}
}

// No line of a wrapped text is wider than the terminal, with its indent, and none breaks earlier than it must. A word
// that is longer than a line has its own.
func TestWrap(t *testing.T) {
	for width, want := range map[int]string{
		0:  "aaaa bbbb ccccc dd e ffffffffffff g\n",
		9:  "aaaa bbbb\n  ccccc\n  dd e\n  ffffffffffff\n  g\n",
		10: "aaaa bbbb\n  ccccc dd\n  e\n  ffffffffffff\n  g\n",
		12: "aaaa bbbb\n  ccccc dd e\n  ffffffffffff\n  g\n",
		40: "aaaa bbbb ccccc dd e ffffffffffff g\n",
	} {
		if got := view.Wrap("aaaa bbbb ccccc dd e ffffffffffff g", width, "  "); got != want {
			t.Errorf("at %d columns: %q, want %q", width, got, want)
		}
	}
}

// Texts keep what can be read, and lose or escape what a terminal interprets.
func TestTextsAreHarmless(t *testing.T) {
	if n, err := view.JSONWriter(broken{}).Write([]byte("x")); n != 0 || !errors.Is(err, errBroken) {
		t.Errorf("Write() = %d, %v, want the error of the writer", n, err)
	}
	for _, test := range []struct{ text, printable, lines, object string }{
		{"a b\u00e9\u65e5", "a b\u00e9\u65e5", "a b\u00e9\u65e5", "a b\u00e9\u65e5"},
		{"a\nb\tc\rd", "a?b?c?d", "a\nb?c?d", "a\nb\tc\rd"},
		{"~\u007f.\u0085.\u009b.\u00a0.", "~?.?.?.?.", "~?.?.?.?.", `~\u007f.\u0085.\u009b.` + "\u00a0."},
		{"\u200f\u202e\u2066x", "???x", "???x", `\u200f\u202e\u2066x`},
	} {
		var w strings.Builder
		if n, err := view.JSONWriter(&w).Write([]byte(test.text)); n != len(test.text) || err != nil || w.String() != test.object {
			t.Errorf("%q is written as %q, %d, %v, want %q", test.text, w.String(), n, err, test.object)
		}
		if printable, lines := view.Printable(test.text), view.PrintableLines(test.text); printable != test.printable || lines != test.lines {
			t.Errorf("%q is printed as %q and %q, want %q and %q", test.text, printable, lines, test.printable, test.lines)
		}
	}
}
