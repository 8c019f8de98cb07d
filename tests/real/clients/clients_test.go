// Package clients_test runs the clients of docs/clients.md against a daemon: grpcurl, which go.mod
// pins, and the Python client, which needs Debian's protobuf-compiler, python3-grpcio and
// python3-protobuf.
package clients_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/daemon"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

const (
	documented = "/run/pleg-pipeline/pleg.sock"
	// namespace is one of the simulated pods.
	namespace = "shop"
)

// node is a simulated runtime and a daemon on it.
type node struct {
	program, dir, runtime string
	*daemon.Daemon
}

func startNode(t *testing.T) *node {
	t.Helper()
	program, err := process.Program()
	kit.Must(t, err)
	n := &node{program: program, dir: process.Dir(t)}
	n.runtime = filepath.Join(n.dir, "cri.sock")
	process.Run(t, exec.Command(program, "simulate", "--socket", n.runtime, "--pods", "10", "--churn-rate", "5"))
	process.Eventually(t, "runtime", func(ctx context.Context) error { return process.Dial(ctx, "unix", n.runtime) })
	n.start(t)
	t.Cleanup(func() { _ = n.Stop() })
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	var err error
	n.Daemon, err = daemon.Start(t.Context(), daemon.Options{Program: n.program, Dir: n.dir, Name: "pleg", Args: []string{"-r", "unix://" + n.runtime}})
	kit.Must(t, err)
}

// restart ends the daemon and starts another, whose epoch differs.
func (n *node) restart(t *testing.T) {
	t.Helper()
	kit.Must(t, n.Stop())
	n.start(t)
}

// TestGrpcurl runs each grpcurl command of the page.
func TestGrpcurl(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clients.md")
	kit.Must(t, err)
	tool, err := exec.Command("go", "tool", "-n", "github.com/fullstorydev/grpcurl/cmd/grpcurl").Output()
	kit.Must(t, err)
	n := startNode(t)
	commands := regexp.MustCompile(`(?m)^\$ grpcurl (.*)$`).FindAllStringSubmatch(string(page), -1)
	want := []string{
		"pleg.v1.PLEG.Watch\n", "Position resume_after = 4;", `"healthy": true`, `"namespace": "` + namespace + `"`,
		"EVENT_TYPE_SYNCED", `"reason": "OtherEpoch"`,
	}
	if len(commands) != len(want) {
		t.Fatalf("the page has %d commands, the test expects %d", len(commands), len(want))
	}
	for i, command := range commands {
		line := strings.TrimSpace(string(tool)) + " " + strings.ReplaceAll(command[1], documented, n.Socket)
		process.Eventually(t, command[0], func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
			if err != nil && !strings.Contains(command[1], "-max-time") || !strings.Contains(string(out), want[i]) {
				return fmt.Errorf("want %q: %w\n%s", want[i], err, out)
			}
			return nil
		})
	}
}

// python is a running watch.py.
type python struct{ *process.Process }

// TestPython follows a restart of the daemon, and resumes with and without a Gap.
func TestPython(t *testing.T) {
	n := startNode(t)
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "protoc", "--proto_path=../../../api/pleg/v1", "--python_out="+dir, "pleg.proto").CombinedOutput()
	if err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	p := startPython(t, dir, n.Socket)
	p.await(t, `(?m)^SYNCED [1-9]\d* containers run$`)
	p.await(t, `(?m)^CONTAINER_STARTED \S+/\S+ \S+ ?$`)
	n.restart(t)
	p.await(t, `(?s)DISCONNECTED.*\nGAP [^\n]*OtherEpoch\n.*SYNCED [1-9]\d* containers run\n`)
	position := p.stop(t)

	resumed := startPython(t, dir, n.Socket, position)
	resumed.await(t, `(?m)^SYNCED`)
	if text := resumed.read(t); strings.Contains(text, "GAP") {
		t.Errorf("resume after %s in the same epoch has a Gap:\n%s", position, text)
	}
	resumed.stop(t)

	other := startPython(t, dir, n.Socket, "0123456789abcdef:5")
	other.await(t, `(?s)^GAP [^\n]*OtherEpoch\n.*SYNCED [1-9]`)
	other.stop(t)
}

func startPython(t *testing.T, dir string, args ...string) python {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", append([]string{"../../../examples/python/watch.py"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	return python{process.Run(t, cmd)}
}

func (p python) read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.Log)
	kit.Must(t, err)
	return string(text)
}

func (p python) await(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	kit.Must(t, p.Await(process.Bounded(t), func(context.Context) error {
		if !re.MatchString(p.read(t)) {
			return fmt.Errorf("no %s in its output", pattern)
		}
		return nil
	}))
}

// stop sends Ctrl-C and returns the position that watch.py prints.
func (p python) stop(t *testing.T) string {
	t.Helper()
	kit.Must(t, p.Interrupt())
	found := regexp.MustCompile(`(?m)^POSITION (\w+:\d+)$`).FindStringSubmatch(p.read(t))
	if found == nil {
		t.Fatalf("watch.py printed no position:\n%s", p.read(t))
	}
	return found[1]
}
