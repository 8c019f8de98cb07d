package cli_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// TestSimulateRepeatsForSeed compares what a pipeline reports of a simulation with faults
// with another simulation of that seed: the containers that died first.
func TestSimulateRepeatsForSeed(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--seed", "3", "--pods", "4", "--churn-rate", "20",
		"--fault", "ContainerStatus/error@0s-1500ms,ListContainers/slow/once@100ms")
	simulated.stderr.await(t, "simulated runtime serves")
	out := newTranscript()
	watched := start(t, out, "run", "-r", "unix://"+socket, "--events", "require", "-o", "go-template={{.type}} {{.containerID}}")
	text := simulated.stderr.await(t, "the fault ListContainers/slow/once@100ms begins")
	if want := "(4 pods, 20 changes/s, seed 3, fault ContainerStatus/error@0s-1500ms, ListContainers/slow/once@100ms)"; !strings.Contains(text, want) {
		t.Errorf("stderr is %s, want %s", text, want)
	}
	for _, id := range diedFirst(t, 10) {
		out.await(t, "ContainerDied "+id)
	}
	watched.stopAndWait(t)
	simulated.stopAndWait(t)
	if _, err := os.Stat(socket); err == nil {
		t.Errorf("%s is still there", socket)
	}
}

// diedFirst returns the first containers that exit in a simulation of TestSimulateRepeatsForSeed.
func diedFirst(t *testing.T, n int) []string {
	t.Helper()
	var died []string
	synctest.Test(t, func(t *testing.T) {
		rt, err := simruntime.New(simruntime.Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Populate(simruntime.Population{Pods: 4, Containers: 2}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_ = rt.Churn(ctx, simruntime.ChurnOptions{Seed: 3, Rate: 20, Pods: 4, Observe: func(string) {
			for _, p := range rt.Pods() {
				for _, c := range p.Containers {
					if c.State == simruntime.Exited && !slices.Contains(died, c.ID) {
						died = append(died, c.ID)
					}
				}
			}
			if len(died) >= n {
				cancel()
			}
		}})
	})
	return died
}

// listen makes a socket and returns its path.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

func TestRunRefusesBadEndpoints(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		endpoint func(t *testing.T) string
		want     string
	}{
		{"not a socket address", func(*testing.T) string { return "tcp://127.0.0.1:80" }, "is not a unix socket: want unix:///"},
		{"relative path", func(*testing.T) string { return "containerd.sock" }, "is not a unix socket: want unix:///"},
		{"nothing there", func(*testing.T) string { return "unix:///nonexistent/s" }, "the socket does not exist"},
		{"directory", func(t *testing.T) string { return t.TempDir() }, "it is a directory, not a socket"},
		{"file", func(*testing.T) string { return file }, "it is a file, not a socket"},
		{"nobody listens", func(t *testing.T) string {
			l, path := listen(t)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			_ = l.Close()
			return path
		}, "nobody listens on the socket"},
		{"another protocol", func(t *testing.T) string {
			l, path := listen(t)
			server := &http.Server{Handler: http.NotFoundHandler()}
			done := make(chan struct{})
			go func() { defer close(done); _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close(); <-done })
			return path
		}, "does not speak gRPC"},
		{"gRPC without CRI", func(t *testing.T) string {
			l, path := listen(t)
			server := grpc.NewServer()
			done := make(chan struct{})
			go func() { defer close(done); _ = server.Serve(l) }()
			t.Cleanup(func() { server.Stop(); <-done })
			return path
		}, "it serves gRPC but not CRI v1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := run(t, "run", "-r", test.endpoint(t))
			if code != cli.ExitFailure || stdout != "" {
				t.Errorf("exit code %d and output %q, want %d and none", code, stdout, cli.ExitFailure)
			}
			if !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "--runtime-endpoint") {
				t.Errorf("stderr = %q, want %q and where the address is from", stderr, test.want)
			}
		})
	}
}

func TestRunRefusesAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code, _, stderr := run(t, "run", "--simulate", "--listen", l.Addr().String())
	if code != cli.ExitFailure || !strings.Contains(stderr, "--listen: ") || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit code %d, stderr %q, want %d and the address in use", code, stderr, cli.ExitFailure)
	}
}

// TestRunStopsBeforeRuntimeAnswers is Ctrl-C while the check of a runtime, which accepts
// and never answers, is still running.
func TestRunStopsBeforeRuntimeAnswers(t *testing.T) {
	t.Parallel()
	l, path := listen(t)
	s := start(t, newTranscript(), "run", "-r", path)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.stop()
	s.ends(t, cli.ExitOK)
	if want := "before the runtime had answered"; !strings.Contains(s.stderr.String(), want) {
		t.Errorf("stderr = %q, want %q", s.stderr, want)
	}
}

func TestSimulateRefusesSocketInUse(t *testing.T) {
	t.Parallel()
	_, path := listen(t)
	for _, path := range []string{path, "/nonexistent/s", t.TempDir()} {
		if code, _, stderr := run(t, "simulate", "--socket", path); code != cli.ExitFailure || !strings.Contains(stderr, "listen on "+path) {
			t.Errorf("simulate --socket %s: exit code %d, stderr %q, want %d and why", path, code, stderr, cli.ExitFailure)
		}
	}
}

// TestErrorsDoNotMoveTheCursor has an error that quotes an argument.
func TestErrorsDoNotMoveTheCursor(t *testing.T) {
	t.Parallel()
	_, _, stderr := run(t, "run", "-r", "unix:///nonexistent/\x1b[2J\u202es")
	if strings.ContainsAny(stderr, "\x1b\u202e") || !strings.Contains(stderr, "/nonexistent/?[2J?s") {
		t.Errorf("stderr = %q, want ? for what cannot be printed", stderr)
	}
}
