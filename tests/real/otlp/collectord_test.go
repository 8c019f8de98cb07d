package otlp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

// patience is how long a test waits for what must come. Nothing is expected to take that
// long; it bounds a test that fails.
const patience = 90 * time.Second

// build builds a package of a module once, and returns the path of the program.
func build(module, pkg, name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path, err := filepath.Abs(filepath.Join("../../../bin", name))
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
	program          = build("../../..", "./cmd/pleg-pipeline", "pleg-pipeline-otlp")
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
	*process.Process
	t          *testing.T
	grpc, http string // addresses
	dir        string
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, grpc: freeAddress(t), http: freeAddress(t), dir: t.TempDir()}
	text := fmt.Sprintf(config, c.grpc, c.http, c.file())
	kit.Must(t, os.WriteFile(filepath.Join(c.dir, "collector.yaml"), []byte(text), 0o600))
	c.start()
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() {
			t.Logf("log of the collector:\n%s", c.Tail())
		}
	})
	return c
}

// freeAddress returns one where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// file is where the collector writes the records, a request in each line.
func (c *collector) file() string { return filepath.Join(c.dir, "logs.json") }

// start starts the process and waits until it accepts connections.
func (c *collector) start() {
	c.t.Helper()
	path, err := collectorProgram()
	kit.Must(c.t, err)
	c.Process, err = process.Start(exec.Command(path, "--config", filepath.Join(c.dir, "collector.yaml")), filepath.Join(c.dir, "log"))
	kit.Must(c.t, err)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	kit.Must(c.t, c.Await(ctx, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.grpc)
		if err == nil {
			err = conn.Close()
		}
		return err
	}))
}
