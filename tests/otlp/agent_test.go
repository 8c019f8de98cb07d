package otlp_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// event is what "run -o json" prints of an event.
type event struct {
	Seq         uint64
	Epoch       string
	Type        string
	PodUID      string
	PodName     string
	ContainerID string
	ExitCode    *int32
	Reason      string
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// agent is the program on a simulated node. It prints every event that it exports, except
// those of the network.
type agent struct {
	t           *testing.T
	events, log output
}

func startAgent(t *testing.T, environment []string, args ...string) *agent {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t}
	c := exec.Command(path, append([]string{"run", "--simulate=5", "--churn-rate", "20", "-o", "json", "--cluster", "test"}, args...)...)
	c.Env = append(os.Environ(), environment...)
	c.Stdout, c.Stderr = &a.events, &a.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGINT)
		if err := c.Wait(); err != nil || t.Failed() {
			t.Errorf("the program: %v\n%s", err, &a.log)
		}
	})
	return a
}

// awaitLog waits until the log has a text.
func (a *agent) awaitLog(part string) {
	a.t.Helper()
	deadline := time.Now().Add(patience)
	for !strings.Contains(a.log.String(), part) {
		if time.Now().After(deadline) {
			a.t.Fatalf("no %q in the log:\n%s", part, &a.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// printed returns the events so far.
func (a *agent) printed() (events []event) {
	a.t.Helper()
	for line := range strings.Lines(a.events.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var ev event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			a.t.Fatalf("%s: %v", line, err)
		}
		events = append(events, ev)
	}
	return events
}

// awaitEvents waits until that many more events were printed, and returns all.
func (a *agent) awaitEvents(more int) []event {
	a.t.Helper()
	want := len(a.printed()) + more
	deadline := time.Now().Add(patience)
	for {
		if events := a.printed(); len(events) >= want {
			return events
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("%d events, want %d\n%s", len(a.printed()), want, &a.log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
