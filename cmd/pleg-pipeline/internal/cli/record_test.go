package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestReplay uses recordings of a container that dies and starts again, and of a pod that is known
// to hang long after the recording has ended. It does not compare replays: the tests of package
// recording do, on a fake clock.
func TestReplay(t *testing.T) {
	t.Parallel()
	if !errors.Is(cli.ReplayEnded, context.Canceled) || errors.Is(cli.ReplayEnded, io.EOF) {
		t.Error("the end of a recording is not a regular end, or is any error")
	}
	again := filepath.Join(t.TempDir(), "again.jsonl")
	t.Cleanup(func() {
		if text, err := os.ReadFile(again); err != nil || !bytes.Contains(text, []byte(`"redacted":true`)) || bytes.Contains(text, []byte("web-0")) {
			t.Errorf("the second recording is not redacted: %v", err)
		}
	})
	text, err := os.ReadFile("testdata/short.jsonl")
	kit.Must(t, err)
	full := filepath.Join(t.TempDir(), "full.jsonl")
	const disk = `{"at":"0s","node":{"disk":{"since":"2026-01-02T03:04:05Z","path":"/images","used":97}}}` + "\n" + `{"at":"1s","end"`
	text = bytes.Replace(text, []byte(`"test","runtimeVersion":"1"`), []byte(`"te\nst","runtimeVersion":"1\n2"`), 1)
	kit.Must(t, os.WriteFile(full, bytes.Replace(text, []byte(`{"at":"1s","end"`), []byte(disk), 1), 0o600))
	text, err = os.ReadFile("testdata/restart.jsonl")
	kit.Must(t, err)
	cut := filepath.Join(t.TempDir(), "cut.jsonl")
	kit.Must(t, os.WriteFile(cut, text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1], 0o600))
	for _, test := range []struct{ args, out, err string }{
		{"pods -r replay:" + full, "web-0", `: 1s of te\?st 1\?2, (.*\n)+.*/images is almost full since`},
		{"events --replay -o json -r replay:testdata/restart.jsonl", `"type":"ContainerStarted"`, "the recording has ended"},
		{"pods -r replay:testdata/short.jsonl", " hangs since .* in PodSandboxStatus", `replaying testdata/short\.jsonl: 1s of test 1, recorded 2026-01-02T03:04:05Z\n`},
		{"events --replay --follow=false -r replay:" + cut, "ContainerStarted", `cut\.jsonl: it has no end: the recorder was killed`},
		{"run --relist-period 100ms -r replay:testdata/restart.jsonl", "ContainerDied", `replaying testdata/restart\.jsonl: 5s of test 1, recorded 2026-01-02T03:04:05Z\npleg-pipeline: connected to test 1 at `},
		{"record --redact -r replay:testdata/restart.jsonl " + again, "^$", "the recording has ended"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, strings.Fields(test.args)...)
			if code != cli.ExitOK || !regexp.MustCompile(test.out).MatchString(stdout) || !regexp.MustCompile(test.err).MatchString(stderr) || strings.Contains(stderr, "--redact replaces") {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q and %q", code, stdout, stderr, test.out, test.err)
			}
		})
	}
}

// TestRecord checks that a recording is complete after Ctrl-C.
func TestRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.jsonl")
	s := start(t, newTranscript(), "record", path, "-r", simulated(t, 2), "--events", "auto")
	s.stderr.await(t, "recording to")
	s.stopAndWait(t)
	text, err := os.ReadFile(path)
	if err != nil || !bytes.HasSuffix(text, []byte(`"end":true}`+"\n")) {
		t.Errorf("the recording ends with %q, %v", text[max(0, len(text)-80):], err)
	}
	header := regexp.MustCompile(`^\{"format":"pleg-pipeline recording","version":3,"program":"\(devel\)","began":"[^"]+","redacted":false\}\n\{"at":"[^"]+","took":"[^"]+","method":"Version",`)
	if !header.Match(text) {
		t.Errorf("the recording begins with %.300s", text)
	}
	said := regexp.MustCompile(fmt.Sprintf(`^pleg-pipeline: connected to simruntime 0\.1\.0 at unix://\S+
pleg-pipeline: recording to %[1]s
pleg-pipeline: %[1]s will contain names, labels, annotations and addresses of all pods; --redact replaces them
pleg-pipeline: context canceled
pleg-pipeline: %[1]s has %d answers of [0-9.]+m?s, %d bytes\n$`, path, bytes.Count(text, []byte(`"method":`)), len(text)))
	if !said.MatchString(s.stderr.String()) {
		t.Errorf("stderr %q, want %v", s.stderr, said)
	}
	if code, _, stderr := run(t, "record", ""); code != cli.ExitUsage || !strings.Contains(stderr, "want the name of the FILE to write") {
		t.Errorf("to no file: exit code %d, stderr %q", code, stderr)
	}
	code, _, stderr := run(t, "record", path+".gz", "-r", simulated(t, 2), "--duration", "100ms", "--relist-period", "1h")
	// On a busy machine, the time is up before the runtime answers.
	if up := regexp.MustCompile(`(?m)^pleg-pipeline: the time is up\n(pleg-pipeline: ` + path + `\.gz has .*\n)?\z`); code != cli.ExitOK || !up.MatchString(stderr) {
		t.Errorf("with --duration: exit code %d, stderr %q", code, stderr)
	}
	runtime := simulated(t, 9, "--fault", "PodSandboxStatus/hang")
	for n := range 4 { // the end of the recording is no answer to a call
		t.Run(fmt.Sprint("hangs ", n), func(t *testing.T) {
			t.Parallel()
			hangs := fmt.Sprint(path, n)
			code, _, stderr := run(t, "record", hangs, "-r", runtime, "--duration", "300ms")
			if text, _ := os.ReadFile(hangs); code != cli.ExitOK || bytes.Contains(text, []byte(`"error"`)) {
				t.Errorf("exit code %d, stderr %q: %s", code, stderr, text)
			}
		})
	}
}

// TestRecordToFullDisk requires an error at once and no file if nothing can be written.
func TestRecordToFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl.gz")
	p := newProcess(t, "-c", `ulimit -f 0; exec "$0" "$@"`, os.Args[0], "record", path, "-r", simulated(t, 2), "--duration", "1m")
	p.cmd.Path = "/bin/sh"
	began := time.Now()
	if err := p.cmd.Run(); err == nil || time.Since(began) > 55*time.Second || !strings.Contains(p.stderr.String(), "write "+path+": file too large") {
		t.Errorf("%v, stderr %q; want that the file is too large", err, p.stderr)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty recording: %v, want none", err)
	}
}

// A recording is no success if its last bytes cannot be written, as on a network filesystem. It is removed if it is empty.
func TestRecordingWithoutAnEnd(t *testing.T) {
	t.Parallel()
	failed, runtime := errors.New("disk quota exceeded"), simulated(t, 2)
	for _, empty := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		if err := cli.RecordTo(t.Context(), path, runtime, failed, empty); !errors.Is(err, failed) {
			t.Errorf("%v, want %v", err, failed)
		}
		if _, err := os.Stat(path); empty && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the empty recording: %v, want none", err)
		}
	}
}
