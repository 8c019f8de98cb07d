package otlp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
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

// awaitLog waits until the log has a number of lines with a text.
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
			break // it is being written
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
