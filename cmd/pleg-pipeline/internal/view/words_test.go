package view_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// TestWordsOf lists what the page and top show of events.
func TestWordsOf(t *testing.T) {
	at := time.Unix(1000, 0)
	ran := pleg.Event{Type: pleg.ContainerDied, ContainerName: "app", StartedAt: at, FinishedAt: at.Add(3 * time.Minute)}
	killed, well, sandbox := ran, ran, pleg.Event{Type: pleg.ContainerDied, ContainerName: "web-0", Sandbox: true}
	killed.ExitCode, killed.Reason = new(int32(137)), "OOMKilled"
	well.ExitCode, well.Reason = new(int32(0)), "Completed"
	for _, test := range []struct {
		event                          pleg.Event
		severity, what, container, why string
	}{
		{killed, "bad", "died 137", "app", "OOMKilled, ran 3m"},
		{well, "notice", "died 0", "app", "ran 3m"},
		{sandbox, "notice", "died", "(sandbox)", ""},
		{pleg.Event{Type: pleg.ContainerStarted, ContainerName: "app", StartedAt: at}, "good", "started", "app", ""},
		{pleg.Event{Type: pleg.PodSync, Missed: 4}, "notice", "sync", "", "4 events missed"},
		{pleg.Event{Type: pleg.Gap, Missed: 7, Reason: pleg.OtherEpoch}, "bad", "gap", "", "7 events are missing: the daemon was restarted; the pods are current"},
		{pleg.Event{Type: "ContainerFrozen", ContainerName: "app"}, "notice", "containerfrozen", "app", ""},
	} {
		test.event.PodUID, test.event.PodNamespace, test.event.PodName = "u", "shop", "web-0"
		if w := view.WordsOf(test.event); w.Severity != test.severity || w.What != test.what || w.Container != test.container || w.Why != test.why || w.Pod != "shop/web-0" {
			t.Errorf("%s: %s, %q, %q, %q of %s, want %+v", test.event.Type, w.Severity, w.What, w.Container, w.Why, w.Pod, test)
		}
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
		"running":            {ContainerStatus: pleg.ContainerStatus{State: pleg.StateRunning}},
		"exited with code 0": {ContainerStatus: exited},
		"exited with code 0, removed 2026-11-27 07:00:00": {ContainerStatus: exited, RemovedAt: removed},
		"exited with code 3 Error":                        {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited, ExitCode: 3, Reason: "Error"}},
		"exited":                                          {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited}, Sandbox: true},
		"exited, removed 2026-11-27 07:00:00":             {ContainerStatus: pleg.ContainerStatus{State: pleg.StateExited}, RemovedAt: removed},
	} {
		var text strings.Builder
		if err := view.NewLookup(c).Print(&text); err != nil || !strings.Contains(text.String(), "state      "+want+"\n") {
			t.Errorf("%v:\n%s\nwant the state %q", err, &text, want)
		}
	}
}
