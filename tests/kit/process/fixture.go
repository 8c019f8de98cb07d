package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// WaitTimeout bounds [Eventually]. It is long because the machine may be busy.
const WaitTimeout = 3 * time.Minute

// Run starts a command until the test ends, when it gets SIGTERM.
func Run(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Start(cmd, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Stop()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", filepath.Base(p.Path), p.Tail())
		}
	})
	return p
}

// Bounded returns a context that ends after [WaitTimeout], or with the test.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), WaitTimeout, fmt.Errorf("not within %v", WaitTimeout))
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until done returns nil. After [WaitTimeout] it ends the test.
func Eventually(t testing.TB, what string, done func(context.Context) error) {
	t.Helper()
	if err := Await(Bounded(t), done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Output runs a program to its end and returns what it prints. The error contains the program's
// standard error.
func Output(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, failed.Stderr)
	}
	return string(out), err
}

// programs contains a build of the program for each list of flags.
var programs sync.Map

// forTests gives the program the hidden flags that only tune rules.
const forTests = "-ldflags=-X=github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli.forTests=yes"

// Program builds the program once, with these flags, and returns its path.
// Each package of tests uses a build of its own, because several may be tested at the same time.
func Program(flags ...string) (string, error) {
	build, _ := programs.LoadOrStore(strings.Join(flags, " "), sync.OnceValues(func() (string, error) { return buildProgram(flags) }))
	return build.(func() (string, error))()
}

func buildProgram(flags []string) (string, error) {
	of, err := os.Getwd()
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/pleg-pipeline/pleg-pipeline").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root := strings.TrimSpace(string(out))
	path := filepath.Join(root, "bin", filepath.Base(of)+strings.Join(flags, ""), "pleg-pipeline")
	build := exec.Command("go", slices.Concat([]string{"build", "-C", filepath.Join(root, "cmd/pleg-pipeline"), "-o", path, forTests}, flags)...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
}

// Dir returns an empty folder until the test ends. Unlike that of t.TempDir, its path is short
// enough for a socket.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pleg-") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return dir
}

// FreeAddress returns an address for a server, which may stop and start again. On 127.0.0.1 an
// outgoing connection could take its port meanwhile; from the other loopback addresses none
// begins.
func FreeAddress(t testing.TB) string {
	t.Helper()
	host := net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(250)), byte(1+rand.IntN(250)))
	l, err := net.Listen("tcp", host.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Dial returns an error unless a server accepts connections.
func Dial(ctx context.Context, network, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Get returns a page that a program serves.
func Get(ctx context.Context, c *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.500s", url, answer.Status, body)
	}
	return string(body), err
}
