// Package natsd runs real nats-servers as child processes, for tests that kill, stop and
// restart them.
package natsd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// Binary builds nats-server in the version that go.mod names, and returns its path. OldBinary
// builds the one of oldserver/go.mod.
var (
	Binary    = sync.OnceValues(func() (string, error) { return build(".") })
	OldBinary = sync.OnceValues(func() (string, error) { return build("oldserver") })
)

// build builds the nats-server of the module in a folder.
func build(folder string) (string, error) {
	// Without -n, go tool would run it as a child of its own, which a kill does not reach.
	path, err := process.Output(context.Background(), "go", "-C", folder, "tool", "-n", "github.com/nats-io/nats-server/v2")
	return strings.TrimSpace(path), err
}

// startTimeout bounds the start of a server.
const startTimeout = 30 * time.Second

// Server is one nats-server. Its address and its store stay the same when it is
// restarted. One goroutine at a time may use it.
type Server struct {
	// URL is the address for clients.
	URL string
	// Binary returns the path of the program.
	Binary func() (string, error)

	// Domain is the JetStream domain; empty for none.
	Domain string

	*process.Process
	dir, config string
}

// New returns a server that keeps its files in dir. config is added to its configuration
// file; it must not set the listener or the store.
func New(t testing.TB, dir, config string) *Server {
	t.Helper()
	return &Server{URL: "nats://" + process.FreeAddress(t), Binary: Binary, dir: dir, config: config}
}

// NewCluster returns three servers that form a cluster, with the tags s0, s1 and s2.
func NewCluster(t testing.TB) (servers []*Server) {
	t.Helper()
	routes := []string{process.FreeAddress(t), process.FreeAddress(t), process.FreeAddress(t)}
	for i, route := range routes {
		servers = append(servers, New(t, t.TempDir(), fmt.Sprintf("server_name: s%[1]d\nserver_tags: s%[1]d\ncluster { name: test, listen: %[2]q, routes: [nats://%[3]s] }",
			i, route, strings.Join(routes, ", nats://"))))
	}
	return servers
}

// Start starts the process and waits until it accepts connections.
func (s *Server) Start(ctx context.Context) error {
	binary, err := s.Binary()
	if err != nil {
		return err
	}
	domain := ""
	if s.Domain != "" {
		domain = ", domain: " + s.Domain
	}
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q%s }\n%s\n", strings.TrimPrefix(s.URL, "nats://"), s.dir, domain, s.config)
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(binary, "-c", filepath.Join(s.dir, "nats.conf"))
	if s.Process, err = process.Start(cmd, filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.Await(ctx, func(ctx context.Context) error { return process.Dial(ctx, "tcp", strings.TrimPrefix(s.URL, "nats://")) })
}

// Kill kills the process with SIGKILL and waits for its end. It does nothing if none was
// started.
func (s *Server) Kill() {
	if s.Process != nil {
		s.Process.Kill()
	}
}
