package otlp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come. Nothing is expected to take that
// long; it bounds a test that fails.
const patience = 90 * time.Second

// build builds a package of a module once, and returns the path of the program.
func build(module, pkg, name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path, err := filepath.Abs(filepath.Join("../../bin", name))
		if err != nil {
			return "", err
		}
		if out, err := exec.Command("go", "build", "-C", module, "-o", path, pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
		return path, nil
	})
}

var (
	collectorProgram = build(".", "./collector", "otel-collector")
	program          = build("../..", "./cmd/pleg-pipeline", "pleg-pipeline-otlp")
)

// The file exporter writes each batch at once only with rotation; otherwise a killed
// collector loses a second of what it has acknowledged.
const config = `
receivers:
  otlp: {protocols: {grpc: {endpoint: %q}, http: {endpoint: %q}}}
exporters:
  file: {path: %q, rotation: {max_megabytes: 1000}}
service:
  pipelines:
    logs: {receivers: [otlp], exporters: [file]}
`

// collector is a real OpenTelemetry Collector. Its addresses and its file stay the same when
// it is restarted.
type collector struct {
	t          *testing.T
	grpc, http string // addresses
	dir        string
	command    *exec.Cmd
	done       chan struct{} // closed when the process has ended
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, grpc: freeAddress(t), http: freeAddress(t), dir: t.TempDir()}
	text := fmt.Sprintf(config, c.grpc, c.http, c.file())
	if err := os.WriteFile(filepath.Join(c.dir, "collector.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			t.Logf("log of the collector:\n%s", log)
		}
	})
	return c
}

// freeAddress returns one where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// file is where the collector writes the records, a request in each line.
func (c *collector) file() string { return filepath.Join(c.dir, "logs.json") }

// start starts the process and waits until it accepts connections.
func (c *collector) start() {
	c.t.Helper()
	path, err := collectorProgram()
	if err != nil {
		c.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	c.command = exec.Command(path, "--config", filepath.Join(c.dir, "collector.yaml"))
	c.command.Stdout, c.command.Stderr = log, log
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.command.Start(); err != nil {
		c.t.Fatal(err)
	}
	done, command := make(chan struct{}), c.command
	c.done = done
	go func() {
		defer close(done)
		_ = command.Wait() // tests kill it
	}()
	c.waitUntilReady()
}

func (c *collector) waitUntilReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.grpc)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.done:
			c.t.Fatal("the collector has ended")
		case <-ctx.Done():
			c.t.Fatal("the collector does not listen")
		}
	}
}

// kill kills the process with SIGKILL and waits for its end.
func (c *collector) kill() {
	_ = c.command.Process.Kill()
	<-c.done
}

// signal sends SIGSTOP or SIGCONT.
func (c *collector) signal(s os.Signal) {
	c.t.Helper()
	if err := c.command.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}
