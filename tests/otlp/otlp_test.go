// Package otlp_test tests the program with a real OpenTelemetry Collector, which writes what
// it receives into a file.
package otlp_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each promise of docs/otlp.md that these tests check is an error here.
var (
	errBrokeIdentity = errors.New("two different records have the same log.record.uid")
	errBrokeOrder    = errors.New("records are not in order")
	errBrokeNoHole   = errors.New("numbers are missing without a Gap")
	errBrokeComplete = errors.New("an event did not arrive")
)

// record is a log record as the collector wrote it.
type record struct {
	plog.LogRecord

	resource pcommon.Resource
}

// get returns an attribute as text; empty without one.
func get(attributes pcommon.Map, key string) string {
	if v, ok := attributes.Get(key); ok {
		return v.AsString()
	}
	return ""
}

func (r record) String() string { return fmt.Sprint(r.EventName(), " ", r.Attributes().AsRaw()) }

func (r record) uid() string { return get(r.Attributes(), "log.record.uid") }

func (r record) seq() (n uint64) {
	n, _ = strconv.ParseUint(get(r.Attributes(), "pleg.seq"), 10, 64)
	return n
}

// records returns what the collector has written.
func (c *collector) records() (records []record, err error) {
	text, err := os.ReadFile(c.file())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		logs, err := new(plog.JSONUnmarshaler).UnmarshalLogs([]byte(line))
		if err != nil {
			if !strings.HasSuffix(line, "\n") {
				break // it is being written
			}
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		for _, resource := range logs.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, r := range scope.LogRecords().All() {
					records = append(records, record{r, resource.Resource()})
				}
			}
		}
	}
	return records, nil
}

// check returns the first promise that the records break. Within a process there is one Gap,
// at its beginning, because the history is long enough.
func check(records []record, printed []event) error {
	byUID := make(map[string]record)
	last := make(map[string]uint64) // of each epoch
	synced := make(map[string]bool)
	gap := make(map[string]uint64) // what came before is there as a state, at most
	for i, r := range records {
		if before, ok := byUID[r.uid()]; ok && (before.EventName() != r.EventName() || before.Timestamp() != r.Timestamp()) {
			return fmt.Errorf("%w: %+v and %+v", errBrokeIdentity, before, r)
		}
		epoch, seq := get(r.Attributes(), "pleg.epoch"), r.seq()
		_, repeated := byUID[r.uid()]
		byUID[r.uid()] = r
		switch {
		case r.EventName() == "pleg.gap":
			gap[epoch] = seq
			continue
		case r.EventName() == "pleg.synced":
			synced[epoch] = true
		case seq < last[epoch] && !repeated:
			return fmt.Errorf("%w: record %d has the new number %d after %d", errBrokeOrder, i, seq, last[epoch])
		case seq > last[epoch]+1 && synced[epoch]:
			return fmt.Errorf("%w: record %d is %s after number %d", errBrokeNoHole, i, r.uid(), last[epoch])
		}
		last[epoch] = max(last[epoch], seq)
	}
	for _, ev := range printed {
		r, ok := byUID[fmt.Sprintf("%s:%d", ev.Epoch, ev.Seq)]
		if !ok && ev.Seq <= gap[ev.Epoch] {
			continue
		}
		if !ok {
			return fmt.Errorf("%w: %+v", errBrokeComplete, ev)
		}
		if get(r.Attributes(), "k8s.pod.uid") != ev.PodUID || get(r.Attributes(), "container.id") != ev.ContainerID {
			return fmt.Errorf("%w: %+v and %+v", errBrokeIdentity, ev, r)
		}
	}
	return nil
}

// converges waits until the collector has every event that was printed, and returns the
// records.
func (c *collector) converges(printed []event) []record {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		records, err := c.records()
		if err == nil {
			err = check(records, printed)
		}
		if err == nil {
			return records
		}
		if !errors.Is(err, errBrokeComplete) || time.Now().After(deadline) {
			c.t.Fatalf("%d records: %v", len(records), err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// overEachProtocol runs a test with a collector and the arguments that name it, once over
// gRPC and once over HTTP.
func overEachProtocol(t *testing.T, test func(*testing.T, *collector, []string)) {
	t.Parallel()
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			c := startCollector(t)
			args := []string{"--otlp", c.grpc, "--otlp-insecure"}
			if protocol == "http" {
				args = []string{"--otlp", "http://" + c.http + "/v1/logs", "--otlp-compression", "gzip"}
			}
			test(t, c, args)
		})
	}
}

// What the Collector's own decoder makes of the records.
func TestCollectorReadsTheRecords(t *testing.T) {
	overEachProtocol(t, readsTheRecords)
}

func readsTheRecords(t *testing.T, c *collector, args []string) {
	a := startAgent(t, []string{"NODE_NAME=n1.example"}, args...)
	printed := a.awaitEvents(100)
	records := c.converges(printed)
	for key, want := range map[string]string{"service.name": "pleg-pipeline", "k8s.cluster.name": "test", "k8s.node.name": "n1.example"} {
		if got := get(records[0].resource.Attributes(), key); got != want {
			t.Errorf("resource attribute %s is %q, want %q", key, got, want)
		}
	}
	if get(records[0].resource.Attributes(), "service.version") == "" {
		t.Error("no service.version")
	}
	if records[0].EventName() != "pleg.gap" || records[0].SeverityText() != "WARN" || records[0].Body().Str() == "" {
		t.Errorf("the first record is %+v, want a Gap", records[0])
	}
	byUID := make(map[string]record)
	for _, r := range records {
		byUID[r.uid()] = r
	}
	exits := 0
	for _, ev := range printed {
		r := byUID[fmt.Sprintf("%s:%d", ev.Epoch, ev.Seq)]
		if get(r.Attributes(), "k8s.pod.name") != ev.PodName || r.Timestamp() == 0 {
			t.Errorf("%+v became %+v", ev, r)
		}
		if ev.ExitCode == nil {
			continue
		}
		exits++
		if get(r.Attributes(), "process.exit.code") != fmt.Sprint(*ev.ExitCode) || get(r.Attributes(), "k8s.container.status.reason") != ev.Reason {
			t.Errorf("%+v became %+v", ev, r)
		}
	}
	if exits == 0 {
		t.Error("no event with an exit code")
	}
}

func TestCollectorKilledAndRestarted(t *testing.T) {
	overEachProtocol(t, func(t *testing.T, c *collector, args []string) {
		a := startAgent(t, nil, args...)
		for range 2 {
			c.converges(a.awaitEvents(50))
			c.kill()
			a.awaitEvents(100)
			a.awaitLog("cannot export events")
			c.start()
			c.converges(a.awaitEvents(50))
		}
		a.awaitLog("exporting again")
	})
}

// A Collector that is stopped holds its connections but does not answer.
func TestCollectorStopped(t *testing.T) {
	overEachProtocol(t, func(t *testing.T, c *collector, args []string) {
		a := startAgent(t, nil, args...)
		c.converges(a.awaitEvents(50))
		c.signal(syscall.SIGSTOP)
		a.awaitLog("cannot export events") // after the time-out of a request
		a.awaitEvents(100)
		c.signal(syscall.SIGCONT)
		c.converges(a.awaitEvents(50))
	})
}

// Restarting the agent begins a new epoch, with a Gap.
func TestAgentRestarted(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	var printed []event
	for i := range 2 {
		t.Run(fmt.Sprint("life ", i+1), func(t *testing.T) {
			a := startAgent(t, []string{"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://" + c.grpc})
			printed = append(printed, a.awaitEvents(50)...)
			c.converges(printed)
		})
	}
	records, err := c.records()
	if err != nil {
		t.Fatal(err)
	}
	epochs := make(map[string]bool)
	for _, r := range records {
		if epoch := get(r.Attributes(), "pleg.epoch"); !epochs[epoch] {
			epochs[epoch] = true
			if r.EventName() != "pleg.gap" {
				t.Errorf("the first record of an epoch is %+v, want a Gap", r)
			}
		}
	}
	if len(epochs) != 2 {
		t.Errorf("%d epochs, want 2", len(epochs))
	}
}

// The configurations of docs/otlp.md: the Collector accepts them.
func TestDocumentedConfigurations(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/otlp.md")
	if err != nil {
		t.Fatal(err)
	}
	path, err := collectorProgram()
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Errorf("%d configurations, want 2", len(blocks))
	}
	for _, block := range blocks {
		file := filepath.Join(t.TempDir(), "collector.yaml")
		if err := os.WriteFile(file, block[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path, "validate", "--config", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, block[1])
		}
	}
}
