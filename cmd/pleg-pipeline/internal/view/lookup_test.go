package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

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
