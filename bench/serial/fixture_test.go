package serial_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var errInspect = errors.New("inspection failed")

// start is the time of the first list; each further one is a second later.
var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

type runtime struct {
	*plegtest.Runtime
	// noAnswer: inspections return neither a status nor an error.
	noAnswer bool
}

func (r *runtime) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	if r.noAnswer {
		return nil, nil
	}
	return r.Runtime.PodStatus(ctx, pod, last)
}

// fixture is a PLEG on a runtime in memory; the test sets its clock.
type fixture struct {
	runtime *runtime
	pleg    *serial.PLEG
	events  chan pleg.Event
	now     time.Time
}

func newFixture(t *testing.T, buffer int, opts serial.Options) *fixture {
	t.Helper()
	f := &fixture{runtime: &runtime{Runtime: plegtest.New()}, events: make(chan pleg.Event, buffer), now: start}
	opts.Events = f.events
	if opts.Clock == nil {
		opts.Clock = func() time.Time { return f.now }
	}
	p, err := serial.New(f.runtime, opts)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	f.pleg = p
	return f
}

func (f *fixture) drain() []pleg.Event { return kit.Drain(f.events) }

// apply applies a list with one pod, "p"; words that are empty are a list without pods.
func (f *fixture) apply(t *testing.T, words string) {
	t.Helper()
	var pods []*pleg.Pod
	if words != "" {
		pods = []*pleg.Pod{plegtest.Pod("p", words)}
	}
	f.pleg.Apply(t.Context(), start, pods)
}
