package cli_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// recorded records a simulated runtime until the recording has at least 30 container
// statuses, which on a busy machine takes more than a second.
func recorded(t *testing.T, name string) string {
	t.Helper()
	for seconds := 1; ; seconds *= 2 {
		path := filepath.Join(t.TempDir(), name)
		code, stdout, stderr := run(t, "record", path, "--simulate=5", "--churn-rate", "40", "--relist-period", "250ms", "--duration", fmt.Sprintf("%ds", seconds))
		if code == cli.ExitOK && !strings.Contains(stderr, "recording to") {
			continue // the time was up before the runtime answered
		}
		want := regexp.MustCompile(`(?m)^pleg-pipeline: the time is up\npleg-pipeline: .* has [0-9]+ answers and [0-9]+ events of [0-9.m]+s, [0-9]+ bytes$`)
		if code != cli.ExitOK || stdout != "" || !want.MatchString(stderr) {
			t.Fatalf("record: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("the recording: %v, %v; want a file that only its owner can read", info, err)
		}
		if statuses(t, path) >= 30 {
			return path
		}
	}
}

// statuses returns how many statuses of containers a recording has.
func statuses(t *testing.T, path string) int {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var r io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte(`"method":"ContainerStatus"`))
}

// steps returns the events of each pod as run prints them, without times.
func steps(t *testing.T, output string) map[pleg.PodUID][]string {
	t.Helper()
	pods := make(map[pleg.PodUID][]string)
	for _, ev := range decode(t, output) {
		pods[ev.PodUID] = append(pods[ev.PodUID], string(ev.Type)+" "+string(ev.ContainerID)+" "+ev.Reason)
	}
	return pods
}

// TestRecordAndReplay compares two replays of a recording, of at most five: on a
// busy machine calls hang, and replays of those may differ. The tests of package
// recording compare replays on a fake clock.
func TestRecordAndReplay(t *testing.T) {
	for try := 1; ; try++ {
		file := recorded(t, "r.jsonl.gz")
		var replays [2]map[pleg.PodUID][]string
		t.Run("replays", func(t *testing.T) {
			for i := range replays {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					replays[i] = replayed(t, file)
				})
			}
		})
		diff := difference(replays[0], replays[1])
		if diff == "" || t.Failed() {
			return
		}
		if try == 5 {
			t.Fatal(diff)
		}
	}
}

// replayed returns the events of a replay.
func replayed(t *testing.T, file string) map[pleg.PodUID][]string {
	t.Helper()
	code, stdout, stderr := run(t, "run", "-r", "replay:"+file, "--relist-period", "100ms", "-o", "json")
	want := regexp.MustCompile(`(?s)^pleg-pipeline: replaying .*r\.jsonl\.gz: [0-9.m]+s of simruntime .*the recording has ended after [0-9.m]+s: [0-9]+ relists, [0-9]+ events`)
	if code != cli.ExitOK || !want.MatchString(stderr) {
		t.Fatalf("run: exit code %d, stderr %q", code, stderr)
	}
	return steps(t, stdout)
}

// difference returns how two replays differ, except at their ends: half a second
// without a new call ends a replay, even if the machine is only busy.
func difference(first, second map[pleg.PodUID][]string) string {
	if len(first) < 5 || len(second) < 5 {
		return fmt.Sprintf("events of %d and %d pods, want 5 and more", len(first), len(second))
	}
	for uid := range first {
		both := min(len(first[uid]), len(second[uid]))
		if !slices.Equal(first[uid][:both], second[uid][:both]) {
			return fmt.Sprintf("pod %s: the second replay shows\n\t%q\nand the first\n\t%q", uid, second[uid], first[uid])
		}
	}
	return ""
}

func TestReplayByOtherCommands(t *testing.T) {
	t.Parallel()
	file := recorded(t, "r.jsonl")
	for _, test := range []struct{ args, out, err string }{
		{"events --replay -o json -r replay:", `"type":"ContainerStarted"`, "the recording has ended"},
		{"pods -o wide -r replay:", "ContainerStarted", "replaying"},
		{"pods --watch -o wide -r replay:", "ContainerDied", "the recording has ended"},
		{"run --replay-speed 3 -r replay:", "ContainerDied", "the recording has ended after"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, strings.Fields(test.args+file)...)
			if code != cli.ExitOK || !strings.Contains(stdout, test.out) || !strings.Contains(stderr, test.err) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}

func TestRecordTakesRecording(t *testing.T) {
	t.Parallel()
	file := recorded(t, "r.jsonl")
	again := filepath.Join(t.TempDir(), "again.jsonl")
	if code, _, stderr := run(t, "record", again, "--redact", "--relist-period", "100ms", "-r", "replay:"+file); code != cli.ExitOK || !strings.Contains(stderr, "the recording has ended") {
		t.Errorf("record of a recording: exit code %d, stderr %q", code, stderr)
	}
	if text, err := os.ReadFile(again); err != nil || !bytes.Contains(text, []byte(`"redacted":true`)) || bytes.Contains(text, []byte("checkout")) {
		t.Errorf("the second recording is not redacted: %v", err)
	}
}

// TestRecordEndsBySignal checks that a recording is complete after Ctrl-C.
func TestRecordEndsBySignal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.jsonl")
	s := start(t, newTranscript(), "record", path, "--simulate=2", "--events", "require")
	s.stderr.await(t, "recording to")
	s.stopAndWait(t)
	text, err := os.ReadFile(path)
	if err != nil || !bytes.HasSuffix(text, []byte(`"end":true}`+"\n")) {
		t.Errorf("the recording ends with %q, %v", text[max(0, len(text)-80):], err)
	}
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	unused := filepath.Join(t.TempDir(), "unused")
	for _, test := range []struct{ args, want string }{
		{"record --simulate " + there, "it exists; name a new file"},
		{"record --simulate /nonexistent/r", "no such file or directory"},
		{"record -r /nonexistent/s " + unused, "the socket does not exist"},
	} {
		if code, _, stderr := run(t, strings.Fields(test.args)...); code != cli.ExitFailure || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, stderr %q, want %d and %q", test.args, code, stderr, cli.ExitFailure, test.want)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "precious" {
		t.Errorf("the existing file has %q, %v", text, err)
	}
	if _, err := os.Stat(unused); err == nil {
		t.Error("an empty recording is left behind")
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty": "", "foreign": "hello\n", "newer": `{"format":"pleg-pipeline recording","version":99}` + "\n", "older": `{"format":"pleg-pipeline recording","version":1}` + "\n",
		"corrupt": `{"format":"pleg-pipeline recording","version":2,"began":"2026-01-02T03:04:05Z"}` + "\nx\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"missing": "no such file", "empty": "the recording is empty", "foreign": "not a recording of pleg-pipeline",
		"newer": "it has format 99, this program reads format 2", "older": "it has format 1, this program reads format 2", "corrupt": "the recording is damaged: line 2",
	} {
		code, stdout, stderr := run(t, "run", "-r", "replay:"+filepath.Join(dir, name))
		if code != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, name) {
			t.Errorf("%s: exit code %d, stderr %q, want %d and %q", name, code, stderr, cli.ExitFailure, want)
		}
	}
	if code, _, stderr := run(t, "doctor", "-r", "replay:r"); code != cli.ExitFailure || !strings.Contains(stderr, "cannot examine the recording") {
		t.Errorf("doctor: exit code %d, stderr %q", code, stderr)
	}
}
