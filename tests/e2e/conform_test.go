//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/truth"
)

// conformReport is what "conform -o json" prints.
type conformReport struct {
	Promises []struct{ ID, Verdict, Evidence string }
}

// conformFile, if set, gets the report of TestConform, for docs/runtimes.md.
const conformFile = "PLEG_CONFORM_FILE"

// The program tries the promises of the runtime and leaves nothing behind.
func TestConform(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	dir := t.TempDir()
	go restartOnRequest(ctx, f.lab, dir)
	cmd := conform(ctx, t, f.lab, "--stop-runtime", request(dir, "stop"), "--start-runtime", request(dir, "start"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Logf("%s\n%s", &stderr, &stdout)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		t.Fatalf("conform: %v", err)
	}
	requireNothing(ctx, t, f.lab)
	var report conformReport
	must(t, json.Unmarshal(stdout.Bytes(), &report))
	want := conformVerdicts[lab.DefaultRuntime()]
	for _, row := range report.Promises {
		if verdict, ok := want[row.ID]; ok && row.Verdict != verdict {
			t.Errorf("%s is %s (%s), want %s", row.ID, row.Verdict, row.Evidence, verdict)
		}
	}
	if file := os.Getenv(conformFile); file != "" {
		must(t, os.WriteFile(file, stdout.Bytes(), 0o644))
	}
}

// conformVerdicts are those that do not depend on chance.
var conformVerdicts = map[lab.Runtime]map[string]string{
	lab.Containerd: {
		"container-events": "kept", "sandbox-events": "kept", "every-client": "kept", "order": "kept", "once": "kept",
		"unread-client": "broken", "streaming-lists": "kept", "status-in-sandbox": "not offered", "not-found": "kept", "filters": "kept",
	},
	lab.Containerd17: {"every-client": "broken", "streaming-lists": "not offered", "not-found": "kept"},
	lab.Containerd16: {"events-off": "kept", "container-events": "not offered", "streaming-lists": "not offered"},
	lab.CRIO: {
		"sandbox-events": "broken", "every-client": "kept", "status-in-sandbox": "kept", "streaming-lists": "not offered", "not-found": "kept",
	},
	lab.CRIOWithoutEvents: {"events-off": "broken", "container-events": "not offered", "status-in-sandbox": "not offered"},
}

// Ctrl-C removes the pods too.
func TestConformInterrupted(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	cmd := conform(ctx, t, f.lab)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	must(t, eventually(ctx, func() bool {
		listed, err := truth.Listed(ctx, f.lab)
		return err == nil && len(listed) >= 3
	}))
	must(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("conform after Ctrl-C: %v, %s", err, &stderr)
	}
	requireNothing(ctx, t, f.lab)
}

func conform(ctx context.Context, t *testing.T, l *lab.Lab, flags ...string) *exec.Cmd {
	t.Helper()
	path, err := buildRelease()
	must(t, err)
	args := []string{"conform", "-r", l.Endpoint(), "--image", lab.Image, "--cgroup-parent", l.CgroupParent(), "-o", "json"}
	return exec.CommandContext(ctx, path, append(args, flags...)...)
}

func requireNothing(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	listed, err := truth.Listed(ctx, l)
	must(t, err)
	if len(listed) > 0 {
		t.Errorf("left are %v", listed)
	}
}

// request is a shell command that has restartOnRequest do something.
func request(dir, what string) string {
	file := filepath.Join(dir, what)
	return fmt.Sprintf("touch %s && while [ -e %s ]; do sleep 0.05; done", file, file)
}

// restartOnRequest kills and starts the runtime until ctx ends.
func restartOnRequest(ctx context.Context, l *lab.Lab, dir string) {
	for sleepUntil(ctx, time.Now().Add(20*time.Millisecond)) == nil {
		for what, do := range map[string]func() error{
			"stop":  func() error { l.Crash(); return nil },
			"start": func() error { return l.Revive(ctx) },
		} {
			file := filepath.Join(dir, what)
			if _, err := os.Stat(file); err == nil && do() == nil {
				_ = os.Remove(file)
			}
		}
	}
}
