// Package natsd runs real nats-servers as child processes, for tests that kill, stop and
// restart them.
package natsd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
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
	out, err := exec.Command("go", "-C", folder, "tool", "-n", "github.com/nats-io/nats-server/v2").Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return "", fmt.Errorf("build nats-server: %w\n%s", err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// startTimeout bounds the start of a server.
const startTimeout = 30 * time.Second

// Server is one nats-server. Its address and its store stay the same when it is
// restarted. One goroutine at a time may use it.
type Server struct {
	// URL is where clients connect.
	URL string
	// Binary returns the path of the program.
	Binary func() (string, error)

	*process.Process
	dir string
}

// New returns a server that keeps its files in dir. config is added to its configuration
// file; it must not set the listener or the store.
func New(dir, config string) (*Server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q }\n%s\n", address, dir, config)
	if err := os.WriteFile(filepath.Join(dir, "nats.conf"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	return &Server{URL: "nats://" + address, Binary: Binary, dir: dir}, nil
}

// NewCluster returns three servers that form a cluster, with the tags s0, s1 and s2 and their files
// in dir.
func NewCluster(dir string) ([]*Server, error) {
	var routes [3]string
	for i := range routes {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		routes[i] = address
	}
	var servers []*Server
	for i, route := range routes {
		own := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		s, err := New(own, fmt.Sprintf("server_name: s%[1]d\nserver_tags: s%[1]d\ncluster { name: test, listen: %[2]q, routes: [nats://%[3]s] }",
			i, route, strings.Join(routes[:], ", nats://")))
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// freeAddress returns an address of a server that may stop and start again. On 127.0.0.1 an
// outgoing connection could have taken its port meanwhile; from the other loopback addresses
// none begins.
func freeAddress() (string, error) {
	host := net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(250)), byte(1+rand.IntN(250)))
	l, err := net.Listen("tcp", host.String()+":0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Start starts the process and waits until it accepts connections.
func (s *Server) Start(ctx context.Context) error {
	binary, err := s.Binary()
	if err != nil {
		return err
	}
	cmd := exec.Command(binary, "-c", filepath.Join(s.dir, "nats.conf"))
	if s.Process, err = process.Start(cmd, filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.Await(ctx, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(s.URL, "nats://"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Kill kills the process with SIGKILL and waits for its end. It does nothing if none was
// started.
func (s *Server) Kill() {
	if s.Process != nil {
		s.Process.Kill()
	}
}
