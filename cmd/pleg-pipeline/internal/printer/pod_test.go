package printer_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func pods() []podview.Pod {
	now := time.Now()
	status := &pleg.PodStatus{
		UID: "u1", Name: "web-0", Namespace: "default", IPs: []string{"10.0.0.7", "fd00::7"},
		Containers: []*pleg.ContainerStatus{
			{ID: "c2", Name: "app", Attempt: 2, State: pleg.StateRunning},
			{ID: "c1", Name: "app", Attempt: 1, State: pleg.StateExited, ExitCode: 1, Reason: "Error"},
			{ID: "c3", Name: "sidecar", State: pleg.StateExited, ExitCode: 137, Reason: "OOMKilled"},
		},
		Sandboxes: []*pleg.SandboxStatus{{ID: "s", Ready: true, Labels: map[string]string{"app": "web"}}},
	}
	busy := podview.New("u1", status, nil, now.Add(-time.Second))
	busy.LastEvent = &pleg.Event{Type: pleg.ContainerDied, ContainerID: "c3", ContainerName: "sidecar", ObservedAt: now.Add(-90 * time.Second)}
	whole := podview.New("u2", &pleg.PodStatus{
		UID: "u2", Name: "db-0", Namespace: "default",
		Containers: []*pleg.ContainerStatus{{ID: "c", Name: "db", State: pleg.StateRunning}},
		Sandboxes:  []*pleg.SandboxStatus{{ID: "s0", Attempt: 1, Ready: true}, {ID: "s", Ready: false}},
	}, nil, now.Add(-3*time.Hour))
	failed := podview.New("u3", nil, errors.New("container_status c: deadline\nexceeded"), time.Time{})
	return []podview.Pod{busy, whole, failed}
}

func TestPodsMatchGoldenFiles(t *testing.T) {
	for _, test := range []struct{ format, golden string }{
		{"text", "testdata/pods.golden"},
		{"wide", "testdata/podswide.golden"},
		{"go-template={{.name}} {{.state}}{{range .containers}} {{.name}}={{.exitCode}}{{end}}", "testdata/podstemplate.golden"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, err := printer.ParsePods(test.format)
			if err != nil {
				t.Fatal(err)
			}
			var w writes
			p := printer.Pods(&w, printer.Options{Format: f, Headers: true})
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			for _, pod := range pods() {
				if err := p.Print(pod); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, test.golden, strings.Join(w, ""))
		})
	}
}
