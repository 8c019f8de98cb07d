package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// record writes a schedule and returns its path and text.
func record(t *testing.T, args ...string) (path, text string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "schedule.json")
	code, stdout, stderr := run(t, append([]string{"simulate", "--record-schedule", path}, args...)...)
	if code != cli.ExitOK || stdout != "" {
		t.Fatalf("exit code %d, output %q, stderr %q", code, stdout, stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, string(data)
}

func TestRecordedScheduleFollowsFromTheSeed(t *testing.T) {
	t.Parallel()
	args := []string{"--pods", "3", "--churn-rate", "10", "--duration", "2s", "--faults", "*/*/*,ContainerStatus/hang/once"}
	_, first := record(t, append(args, "--seed", "7")...)
	_, again := record(t, append(args, "--seed", "7")...)
	_, other := record(t, append(args, "--seed", "8")...)
	if first != again || first == other {
		t.Errorf("one seed gives\n%s\nand\n%s\nanother\n%s", first, again, other)
	}
	if strings.Count(first, `"do":`) != 20 || strings.Count(first, `"call":`) != 2 {
		t.Errorf("want 20 steps and 2 faults in\n%s", first)
	}
	if _, still := record(t, "--pods", "0", "--churn-rate", "0"); strings.Contains(still, `"do":`) || strings.Contains(still, `"name":`) {
		t.Errorf("no pods and no churn give\n%s", still)
	}
}

// What a client sees of a file is the same each time.
func TestReplay(t *testing.T) {
	t.Parallel()
	path, _ := record(t, "--pods", "4", "--churn-rate", "20", "--duration", "1500ms", "--seed", "3",
		"--faults", "ContainerStatus/error/always,ListContainers/slow/once")
	first := replay(t, path)
	if again := replay(t, path); !slices.Equal(first, again) {
		t.Errorf("two replays gave\n%v\nand\n%v", first, again)
	}
	if len(first) < 10 {
		t.Errorf("only %v: this tests nothing", first)
	}
}

// replay returns what a pipeline tells of a file: each container that has died,
// of those whose pods are there in the end.
func replay(t *testing.T, path string) []string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--replay", path)
	simulated.stderr.await(t, "simulated runtime serves")
	out := newTranscript()
	watched := start(t, out, "run", "-r", "unix://"+socket, "--events", "require", "-o", "json")
	text := simulated.stderr.await(t, "the schedule has been played: 30 steps, ")
	if !regexp.MustCompile(`\(4 pods, 30 steps and 2 faults in 1\.5s from the first call on\)`).MatchString(text) ||
		strings.Contains(text, "passed over") {
		t.Errorf("stderr is %s", text)
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

func TestBadReplayFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, test := range map[string]struct{ text, want string }{
		"missing.json": {"", "no such file"},
		"newer.json":   {`{"version": 99}`, "made by a newer program"},
		"cut.json":     {`{"version": 1, "pods": [`, "line 1: unexpected end of JSON"},
	} {
		path := filepath.Join(dir, name)
		if test.text != "" {
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, _, stderr := run(t, "simulate", "--socket", filepath.Join(dir, "s"), "--replay", path)
		if code != cli.ExitFailure || !strings.Contains(stderr, name) || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, stderr %q, want %d and %q", name, code, stderr, cli.ExitFailure, test.want)
		}
	}
}
