// Package otlp_test tests the program with a real OpenTelemetry Collector, which writes the records
// that it receives into a file.
package otlp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/logrecords"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exports returns the requests that the collector has written.
func (c *collector) exports() (exports []*logsv1.ResourceLogs, err error) {
	text, err := os.ReadFile(c.file())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the last line is being written
		}
		var data logsv1.LogsData
		if err := protojson.Unmarshal([]byte(line), &data); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		exports = append(exports, data.GetResourceLogs()...)
	}
	return exports, nil
}

// attributes returns texts, numbers and truth values.
func attributes(from []*commonv1.KeyValue) map[string]any {
	values := make(map[string]any)
	for _, a := range from {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			values[a.GetKey()] = v.StringValue
		case *commonv1.AnyValue_BoolValue:
			values[a.GetKey()] = v.BoolValue
		case *commonv1.AnyValue_IntValue:
			values[a.GetKey()] = v.IntValue
		}
	}
	return values
}

// converges waits until the collector has written every printed event, and returns the records and
// their resources.
func (c *collector) converges(printed []pleg.Event) (records []logrecords.Record, resource map[string]any) {
	c.t.Helper()
	process.Eventually(c.t, "the records", func(context.Context) error {
		exports, err := c.exports()
		kit.Must(c.t, err)
		records = nil
		for _, export := range exports {
			resource = attributes(export.GetResource().GetAttributes())
			for _, scope := range export.GetScopeLogs() {
				for _, r := range scope.GetLogRecords() {
					records = append(records, logrecords.Record{
						Name: r.GetEventName(), Severity: r.GetSeverityText(), Body: r.GetBody().GetStringValue(),
						Time: time.Unix(0, int64(r.GetTimeUnixNano())), Attributes: attributes(r.GetAttributes()),
					})
				}
			}
		}
		err = logrecords.Check(records, printed)
		if err != nil && !errors.Is(err, logrecords.ErrComplete) {
			c.t.Fatalf("%d records: %v", len(records), err)
		}
		return err
	})
	return records, resource
}

// overEachProtocol runs a test with a collector and the variables that name it, once over
// gRPC and once over HTTP.
func overEachProtocol(t *testing.T, test func(*testing.T, *collector, []string)) {
	t.Parallel()
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := startCollector(t)
			environment := []string{"PLEG_PIPELINE_OTLP=" + c.grpc, "OTEL_EXPORTER_OTLP_INSECURE=true"}
			if protocol == "http" {
				environment = []string{
					"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.http, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
				}
			}
			test(t, c, environment)
		})
	}
}

// The Collector's own decoder reads the records.
func TestCollectorReadsTheRecords(t *testing.T) {
	overEachProtocol(t, func(t *testing.T, c *collector, environment []string) {
		a := startAgent(t, append(environment, "NODE_NAME=n1.example"))
		printed := a.awaitEvents(100)
		records, resource := c.converges(printed)
		for key, want := range map[string]string{"service.name": "pleg-pipeline", "k8s.cluster.name": "test", "k8s.node.name": "n1.example"} {
			if got := resource[key]; got != want {
				t.Errorf("resource attribute %s is %v, want %q", key, got, want)
			}
		}
		if resource["service.version"] == nil {
			t.Error("no service.version")
		}
		if r := records[0]; r.Name != "pleg.gap" || r.Severity != "WARN" || r.Body == "" {
			t.Errorf("the first record is %v, want a Gap", r)
		}
		byUID := make(map[any]logrecords.Record)
		for _, r := range records {
			byUID[r.Attributes["log.record.uid"]] = r
		}
		exits := 0
		for _, ev := range printed {
			r := byUID[fmt.Sprintf("%s:%d", ev.Epoch, ev.Seq)]
			if r.Attributes["k8s.pod.name"] != ev.PodName || r.Time.Unix() == 0 {
				t.Errorf("%+v became %v", ev, r)
			}
			if ev.ExitCode == nil {
				continue
			}
			exits++
			if reason, _ := r.Attributes["k8s.container.status.reason"].(string); r.Attributes["process.exit.code"] != int64(*ev.ExitCode) || reason != ev.Reason {
				t.Errorf("%+v became %v", ev, r)
			}
		}
		if exits == 0 {
			t.Error("no event with an exit code")
		}
	})
}

// The Collector is killed and started again, and then stopped.
func TestCollectorIsAway(t *testing.T) {
	const failed = "cannot export events"
	overEachProtocol(t, func(t *testing.T, c *collector, environment []string) {
		a := startAgent(t, environment)
		c.converges(a.awaitEvents(50))
		c.Kill()
		a.awaitEvents(100)
		a.awaitLog(failed, 1)
		c.start()
		c.converges(a.awaitEvents(50))
		a.awaitLog("exporting again", 1)
		before := a.log.Count(failed)
		kit.Must(t, c.Pause()) // the Collector keeps its connections but does not answer
		a.awaitEvents(100)
		a.awaitLog(failed, before+1) // after the time-out of a request
		kit.Must(t, c.Continue())
		c.converges(a.awaitEvents(50))
	})
}

// The configurations of docs/otlp.md: the Collector accepts them.
func TestDocumentedConfigurations(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/otlp.md")
	kit.Must(t, err)
	path, err := collectorProgram()
	kit.Must(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Errorf("%d configurations, want 2", len(blocks))
	}
	for _, block := range blocks {
		file := filepath.Join(t.TempDir(), "collector.yaml")
		kit.Must(t, os.WriteFile(file, block[1], 0o600))
		if out, err := exec.Command(path, "validate", "--config", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, block[1])
		}
	}
}
