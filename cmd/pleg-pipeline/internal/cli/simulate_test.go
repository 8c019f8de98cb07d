package cli_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// TestSimulateRepeatsForSeed compares what a pipeline reports of two runs.
func TestSimulateRepeatsForSeed(t *testing.T) {
	first := simulated(t)
	if again := simulated(t); !slices.Equal(first, again) {
		t.Errorf("the same seed gives\n%v\nand\n%v", first, again)
	}
	if len(first) < 10 {
		t.Errorf("only %v: this tests nothing", first)
	}
}

// simulated returns what a pipeline reports of a simulation with faults: all pods
// in the end, and each container that died, of those whose pods are still there.
func simulated(t *testing.T) []string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--seed", "3", "--pods", "4", "--churn-rate", "20",
		"--duration", "1500ms", "--faults", "ContainerStatus/error/always,ListContainers/slow/once")
	simulated.stderr.await(t, "simulated runtime serves")
	out := newTranscript()
	watched := start(t, out, "run", "-r", "unix://"+socket, "--events", "require", "-o", "json")
	text := simulated.stderr.await(t, "the faults have ended: ")
	if want := "(4 pods, 20 changes/s, seed 3, 2 faults within 1.5s of the first call)"; !strings.Contains(text, want) {
		t.Errorf("stderr is %s, want %s", text, want)
	}
	code, pods, stderr := run(t, "pods", "-r", "unix://"+socket, "-o", "go-template={{.uid}}:{{range .containers}} {{.id}} {{.state}}{{end}}")
	if code != cli.ExitOK {
		t.Errorf("pods: exit code %d, stderr %s", code, stderr)
	}
	watched.stop()
	watched.ends(t, cli.ExitOK)
	simulated.stop()
	simulated.ends(t, cli.ExitOK)
	seen := strings.Split(strings.TrimSpace(pods), "\n")
	for line := range strings.Lines(out.String()) {
		var ev pleg.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if ev.Type == pleg.ContainerDied && strings.Contains(pods, string(ev.ContainerID)) {
			seen = append(seen, "died "+string(ev.ContainerID))
		}
	}
	slices.Sort(seen)
	return seen
}
