package otlp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// collectorProgram builds the collector once.
var collectorProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../../bin/otel-collector")
	if err != nil {
		return "", err
	}
	_, err = process.Output(context.Background(), "go", "build", "-o", path, "./collector")
	return path, err
})

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
	c := &collector{t: t, grpc: process.FreeAddress(t), http: process.FreeAddress(t), dir: t.TempDir()}
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

// file is where the collector writes the records, a request in each line.
func (c *collector) file() string { return filepath.Join(c.dir, "logs.json") }

// start starts the process and waits until it accepts connections.
func (c *collector) start() {
	c.t.Helper()
	path, err := collectorProgram()
	kit.Must(c.t, err)
	c.Process, err = process.Start(exec.Command(path, "--config", filepath.Join(c.dir, "collector.yaml")), filepath.Join(c.dir, "log"))
	kit.Must(c.t, err)
	kit.Must(c.t, c.Await(process.Bounded(c.t), func(ctx context.Context) error { return process.Dial(ctx, "tcp", c.grpc) }))
}
