package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestPodsFromDaemon(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	code, stdout, stderr := run(t, "pods", "--connect", socket)
	if code != cli.ExitOK || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	text := strings.Split(stdout, "\n")
	if len(text) != 4 || !strings.HasPrefix(text[0], "NAMESPACE ") {
		t.Fatalf("output = %q, want a header and two pods", stdout)
	}
	row := regexp.MustCompile(`^[a-z-]+ +[a-z0-9-]+ +ready +2/2 +0 +ContainerStarted \S+ +[0-9.]+s +[0-9.]+s$`)
	for _, line := range text[1:3] {
		if !row.MatchString(line) {
			t.Errorf("line %q, want a match of %q", line, row)
		}
	}

	_, stdout, _ = run(t, "pods", "--connect", socket, "-o", "json")
	for line := range strings.Lines(stdout) {
		var pod podview.Pod
		if err := json.Unmarshal([]byte(line), &pod); err != nil || pod.Total != 2 || pod.LastEvent == nil || pod.LastEvent.Type != pleg.ContainerStarted {
			t.Errorf("line %q, %v, want a pod of two containers", line, err)
		}
	}
	if _, stdout, _ = run(t, "pods", "--connect", socket, "-n", "nowhere", "--no-headers"); stdout != "" {
		t.Errorf("pods of another namespace = %q, want none", stdout)
	}
}

func TestPodsFromOwnPipeline(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "pods", "--simulate=4", "--churn-rate", "0", "-o", "go-template={{.name}} {{len .containers}}")
	if code != cli.ExitOK || strings.Count(stdout, " 2\n") != 4 {
		t.Errorf("exit code %d, output %q, stderr %q, want four pods", code, stdout, stderr)
	}
}

func TestPodsWatchPrintsRemovedPod(t *testing.T) {
	t.Parallel()
	out := newTranscript()
	s := start(t, out, "pods", "--simulate=4", "--churn-rate", "50", "--watch")
	out.await(t, " gone ")
	s.stopAndWait(t)
	if strings.Count(out.String(), "NAMESPACE") != 1 {
		t.Errorf("output = %q, want one header", out)
	}
}

func TestPodsWatchSurvivesRestartOfDaemon(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	d := startDaemon(t, socket)
	out := newTranscript()
	s := start(t, out, "pods", "--connect", socket, "--watch", "-o", "json")
	out.await(t, "\n")
	d.stopAndWait(t)
	s.stderr.await(t, "disconnected from the daemon (")
	startDaemon(t, socket)
	s.stderr.await(t, "reconnected to the daemon: ")
	s.stopAndWait(t)
}
