// Package clients_test runs the clients of docs/clients.md against a daemon: grpcurl, which go.mod
// pins, and the Python client, which needs Debian's protobuf-compiler, python3-grpcio and
// python3-protobuf.
package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	waitTimeout = time.Minute
	documented  = "/run/pleg-pipeline/pleg.sock"
	// namespace is one of the simulated pods.
	namespace = "shop"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a simulated runtime and a daemon on it.
type node struct {
	program, runtime, socket string
	daemon                   *exec.Cmd
}

func startNode(t *testing.T) *node {
	t.Helper()
	program := os.Getenv("PLEG_PROGRAM")
	if program == "" {
		t.Fatal("PLEG_PROGRAM is not set: run make test-clients")
	}
	dir, err := os.MkdirTemp("", "clients") //nolint:usetesting // short: the path of a socket is limited
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{program: program, runtime: filepath.Join(dir, "cri.sock"), socket: filepath.Join(dir, "pleg.sock")}
	start(t, exec.Command(program, "simulate", "--socket", n.runtime, "--pods", "10", "--churn-rate", "5"))
	await(t, "runtime", func() bool { return exists(n.runtime) })
	n.startDaemon(t)
	return n
}

func (n *node) startDaemon(t *testing.T) {
	t.Helper()
	n.daemon = exec.Command(n.program, "run", "--quiet", "-r", "unix://"+n.runtime, "--socket", n.socket)
	start(t, n.daemon)
	await(t, "daemon", func() bool { return exists(n.socket) })
}

// restart ends the daemon and starts another, whose epoch differs.
func (n *node) restart(t *testing.T) {
	t.Helper()
	must(t, n.daemon.Process.Signal(syscall.SIGTERM))
	_ = n.daemon.Wait() // the error is that it was ended
	n.startDaemon(t)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// start runs a command until the test ends.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// await polls until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, waitTimeout)
		}
	}
}

// TestGrpcurl runs each grpcurl command of the page.
func TestGrpcurl(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clients.md")
	must(t, err)
	tool, err := exec.Command("go", "tool", "-n", "github.com/fullstorydev/grpcurl/cmd/grpcurl").Output()
	must(t, err)
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
		line := strings.TrimSpace(string(tool)) + " " + strings.ReplaceAll(command[1], documented, n.socket)
		await(t, command[0]+" with "+want[i], func() bool {
			out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
			ended := err != nil && strings.Contains(command[1], "-max-time")
			if err != nil && !ended {
				t.Logf("%s: %v\n%s", line, err, out)
			}
			return (err == nil || ended) && strings.Contains(string(out), want[i])
		})
	}
}

// python is a running watch.py.
type python struct {
	cmd    *exec.Cmd
	output string // a file
}

// TestPython follows a restart of the daemon, and resumes with and without a Gap.
func TestPython(t *testing.T) {
	n := startNode(t)
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "protoc", "--proto_path=../../../api/pleg/v1", "--python_out="+dir, "pleg.proto").CombinedOutput()
	if err != nil {
		t.Fatalf("protoc: %v\n%s", err, out)
	}
	p := startPython(t, dir, n.socket)
	p.await(t, `(?m)^SYNCED [1-9]\d* containers run$`)
	p.await(t, `(?m)^CONTAINER_STARTED \S+/\S+ \S+ ?$`)
	n.restart(t)
	p.await(t, `(?s)DISCONNECTED.*\nGAP [^\n]*OtherEpoch\n.*SYNCED [1-9]\d* containers run\n`)
	position := p.stop(t)

	resumed := startPython(t, dir, n.socket, position)
	resumed.await(t, `(?m)^SYNCED`)
	if text := resumed.read(t); strings.Contains(text, "GAP") {
		t.Errorf("resume after %s in the same epoch has a Gap:\n%s", position, text)
	}
	resumed.stop(t)

	other := startPython(t, dir, n.socket, "0123456789abcdef:5")
	other.await(t, `(?s)^GAP [^\n]*OtherEpoch\n.*SYNCED [1-9]`)
	other.stop(t)
}

func startPython(t *testing.T, dir string, args ...string) *python {
	t.Helper()
	f, err := os.CreateTemp(dir, "output")
	must(t, err)
	defer f.Close()
	p := &python{cmd: exec.Command("/usr/bin/python3", append([]string{"../../../examples/python/watch.py"}, args...)...), output: f.Name()}
	p.cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	p.cmd.Stdout, p.cmd.Stderr = f, f
	start(t, p.cmd)
	return p
}

func (p *python) read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.output)
	must(t, err)
	return string(text)
}

func (p *python) await(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	defer func() {
		if t.Failed() {
			t.Logf("output of watch.py:\n%s", p.read(t))
		}
	}()
	await(t, "output of watch.py with "+pattern, func() bool { return re.MatchString(p.read(t)) })
}

// stop sends Ctrl-C and returns the position that watch.py prints.
func (p *python) stop(t *testing.T) string {
	t.Helper()
	must(t, p.cmd.Process.Signal(os.Interrupt))
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("watch.py: %v\n%s", err, p.read(t))
	}
	found := regexp.MustCompile(`(?m)^POSITION (\w+:\d+)$`).FindStringSubmatch(p.read(t))
	if found == nil {
		t.Fatalf("watch.py printed no position:\n%s", p.read(t))
	}
	return found[1]
}
