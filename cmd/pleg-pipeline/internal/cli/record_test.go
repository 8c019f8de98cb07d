package cli_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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
		want := regexp.MustCompile(`(?m)^pleg-pipeline: the time is up\npleg-pipeline: .* has [0-9]+ answers and events of [0-9.m]+s, [0-9]+ bytes$`)
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
	kit.Must(t, err)
	defer file.Close()
	var r io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(r)
	kit.Must(t, err)
	return bytes.Count(text, []byte(`"method":"ContainerStatus"`))
}

// busy matches what a replay prints if the machine is so busy that the recording lacks statuses
// of what it lists, is over before the pipeline has made its calls, or answers none in time.
var busy = regexp.MustCompile(`inspections are slow|inspection hangs|the recording has no answer|does not answer within`)

// TestReplay makes another recording if a busy machine spoils one. It does not compare
// replays: the tests of package recording do, on a fake clock.
func TestReplay(t *testing.T) {
	t.Parallel()
	file := recorded(t, "r.jsonl.gz")
	for _, test := range []struct{ args, out, err string }{
		{"events --replay -o json -r replay:", `"type":"ContainerStarted"`, "the recording has ended"},
		{"pods -o wide -r replay:", "\nshop ", "replaying"},
		{"pods --watch -o json -r replay:", `"state":"exited"`, "the recording has ended"},
		{"run --replay-speed 3 -r replay:", "ContainerDied", `the recording has ended after [0-9.m]+s: [0-9]+ relists, [0-9]+ events`},
		{"run --relist-period 100ms -r replay:", "ContainerStarted", `replaying .*r\.jsonl\.gz: [0-9.m]+s of simruntime`},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			for try, file := 1, file; ; try, file = try+1, recorded(t, "r.jsonl.gz") {
				code, stdout, stderr := run(t, strings.Fields(test.args+file)...)
				if code == cli.ExitOK && strings.Contains(stdout, test.out) && regexp.MustCompile(test.err).MatchString(stderr) {
					return
				}
				if stdout != "" && !busy.MatchString(stderr) || try == 30 { // nothing: it was over before the list
					t.Fatalf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
				}
			}
		})
	}
}

// TestPodsOfAShortRecording has a recording that ends long before a pod of it is known to hang.
func TestPodsOfAShortRecording(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "pods", "-r", "replay:testdata/short.jsonl")
	if code != cli.ExitOK || !strings.Contains(stdout, " web-0 ") || !strings.Contains(stdout, "in PodSandboxStatus") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want both pods", code, stdout, stderr)
	}
}

func TestRecordTakesRecording(t *testing.T) {
	t.Parallel()
	file := recorded(t, "r.jsonl")
	again := filepath.Join(t.TempDir(), "again.jsonl")
	args := []string{"record", again, "--redact", "--relist-period", "100ms", "-r", "replay:" + file}
	code, _, stderr := run(t, args...)
	for code == cli.ExitFailure && strings.Contains(stderr, "does not answer within") { // as on a busy machine
		code, _, stderr = run(t, args...)
	}
	if code != cli.ExitOK || !strings.Contains(stderr, "the recording has ended") {
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
