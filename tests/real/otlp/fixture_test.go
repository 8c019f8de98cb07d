package otlp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// agent is the program on a simulated node. It prints every event that it exports, except network
// events.
type agent struct {
	t           *testing.T
	events, log kit.Log
}

func startAgent(t *testing.T, environment []string) *agent {
	t.Helper()
	path, err := process.Program()
	kit.Must(t, err)
	a := &agent{t: t}
	c := exec.Command(path, "run", "--simulate=5", "--churn-rate", "20", "-o", "json", "--cluster", "test")
	c.Env = append(c.Environ(), environment...)
	c.Stdout, c.Stderr = &a.events, &a.log
	p := process.Run(t, c)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil || t.Failed() {
			t.Errorf("the program: %v\n%s", err, &a.log)
		}
	})
	return a
}

// awaitLog waits until the log contains a number of lines with a text.
func (a *agent) awaitLog(part string, lines int) {
	a.t.Helper()
	process.Eventually(a.t, "the log", func(context.Context) error {
		if a.log.Count(part) < lines {
			return fmt.Errorf("not %d lines with %q in the log:\n%s", lines, part, &a.log)
		}
		return nil
	})
}

// printed returns the events so far.
func (a *agent) printed() (events []pleg.Event) {
	a.t.Helper()
	for line := range strings.Lines(a.events.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // the last line is being written
		}
		var ev pleg.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			a.t.Fatalf("%s: %v", line, err)
		}
		events = append(events, ev)
	}
	return events
}

// awaitEvents waits until a number of further events were printed, and returns all events.
func (a *agent) awaitEvents(more int) (events []pleg.Event) {
	a.t.Helper()
	want := len(a.printed()) + more
	process.Eventually(a.t, "more events", func(context.Context) error {
		if events = a.printed(); len(events) < want {
			return fmt.Errorf("%d events, want %d\n%s", len(events), want, &a.log)
		}
		return nil
	})
	return events
}

// collectorProgram builds the collector once.
var collectorProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../../bin/otel-collector")
	if err != nil {
		return "", err
	}
	_, err = process.Output(context.Background(), "go", "build", "-o", path, "./collector")
	return path, err
})

// The file exporter writes each batch at once only with rotation; otherwise a killed collector
// loses a second of acknowledged records.
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

// file is the file to which the collector writes the records, a request in each line.
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
