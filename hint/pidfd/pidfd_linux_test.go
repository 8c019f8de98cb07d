package pidfd_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/hint/pidfd"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startProcess starts a shell in a cgroup that is named after a container. It ends after end.
func startProcess(t *testing.T, cgroups, container, script string) (end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	dir := filepath.Join(cgroups, "kubepods", container)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil { // 0 is a process of another pid namespace
		err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Appendf(nil, "0\n%d\n", cmd.Process.Pid), 0o600)
	}
	kit.Must(t, err)
	return func() { _ = in.Close(); _ = cmd.Wait() }
}

// kernelTells reports whether this is Linux 6.15 or later.
func kernelTells(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	var major, minor int
	err := unix.Uname(&name)
	if err == nil {
		_, err = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	}
	kit.Must(t, err)
	return major > 6 || major == 6 && minor >= 15
}

// logged receives the messages of a log.
type logged chan string

func (logged) Enabled(context.Context, slog.Level) bool        { return true }
func (l logged) Handle(_ context.Context, r slog.Record) error { l <- r.Message; return nil }
func (l logged) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l logged) WithGroup(string) slog.Handler                 { return l }

// hosted is a pipeline whose lookups find the cgroups of the test.
type hosted struct {
	*pipeline.Pipeline
	cgroups string
}

func (h hosted) Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error) {
	path := q.WithPath
	q.WithPath = false
	c, err := h.Pipeline.Lookup(ctx, q)
	if path {
		c.CgroupPath = "/kubepods/" + string(c.ID)
	}
	return c, err
}

// The end of a process alone relists its pod, at once and until the runtime agrees.
func TestEndIsAHint(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		code   int32
	}{
		"exit":   {"read x; exit 7", 7},
		"signal": {"read x; kill -TERM $$", 128 + 15},
	} {
		t.Run(name, func(t *testing.T) { testEndIsAHint(t, test.script, test.code) })
	}
}

func testEndIsAHint(t *testing.T, script string, code int32) {
	cgroups, id := t.TempDir(), strings.Repeat("c", 64)
	kit.Must(t, os.WriteFile(filepath.Join(cgroups, "cgroup.procs"), nil, 0o600))
	endProcess := startProcess(t, cgroups, id, script)
	runtime := plegtest.New()
	runtime.Set("web", id+"=running /s=running")
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: time.Hour})
	kit.Must(t, err)
	died, err := p.Subscribe(pipeline.SubscribeOptions{Filter: pleg.Filter{Types: []pleg.EventType{pleg.ContainerDied}}})
	kit.Must(t, err)
	kit.Run(t, p.Run)
	kit.Must(t, p.Relist(t.Context()))
	ended, watching := make(chan pidfd.End, 10), make(logged, 10)
	kit.Run(t, func(ctx context.Context) error {
		return pidfd.Run(ctx, hosted{p, cgroups}, pidfd.Options{Cgroup: cgroups, Ended: func(e pidfd.End) { ended <- e }, Logger: slog.New(watching)})
	})
	if said := <-watching; said != "process of container watched" {
		t.Fatal(said)
	}
	listed := make(chan struct{}, 100)
	runtime.SetListFault(func(context.Context) error { listed <- struct{}{}; return nil })
	endProcess()
	end := <-ended
	if end.Container.PodUID != "web" || end.ExitCode == nil && kernelTells(t) || end.ExitCode != nil && *end.ExitCode != code {
		t.Errorf("end %+v, want the end of web with %d", end, code)
	}
	<-listed
	runtime.Set("web", id+"=exited /s=running") // the runtime is later than the kernel
	<-listed
	if ev := <-died.Events(); string(ev.ContainerID) != id {
		t.Errorf("got %+v", ev)
	}
}
