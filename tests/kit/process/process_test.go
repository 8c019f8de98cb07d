package process_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, script string) *process.Process {
	t.Helper()
	p, err := process.Start(exec.Command("sh", "-c", script), filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestAwaitEndsWithTheProcess(t *testing.T) {
	p := start(t, "echo no room; exit 3")
	err := p.Await(t.Context(), func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "no room") || p.Alive() == nil {
		t.Errorf("Await() = %v, Alive() = %v, want an end that shows the log", err, p.Alive())
	}
}

func TestStopReportsTheExitCode(t *testing.T) {
	for script, code := range map[string]string{
		`trap "exit 0" TERM; echo ready; while :; do sleep 0.01; done`: "",
		`trap "exit 4" TERM; echo ready; while :; do sleep 0.01; done`: "exit status 4",
	} {
		p := start(t, script)
		ready := func(context.Context) error {
			if p.Tail() != "ready" {
				return errors.New("not ready")
			}
			return nil
		}
		if err := p.Await(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(); code == "" && err != nil || code != "" && (err == nil || !strings.Contains(err.Error(), code)) {
			t.Errorf("Stop() = %v, want %q", err, code)
		}
	}
}

func TestUseOf(t *testing.T) {
	p := start(t, "while :; do :; done")
	busy := func(context.Context) error {
		use, err := process.UseOf(p.PID())
		if err != nil || use.CPU < 50*time.Millisecond || use.RSS < 100<<10 || use.RSS > 100<<20 {
			return errors.Join(errors.New("not busy"), err)
		}
		return nil
	}
	if err := p.Await(t.Context(), busy); err != nil {
		t.Error(err)
	}
}
