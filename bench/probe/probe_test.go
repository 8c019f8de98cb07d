package probe_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/benchtest"
	"github.com/pleg-pipeline/pleg-pipeline/bench/control"
	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWindowMeasuresFromItsRelist(t *testing.T) {
	relist := time.Now()
	ask, end := benchtest.Serve(t, func(ctx context.Context, emit func(probe.Event)) error {
		emit(probe.Event{Type: "ContainerDied", ID: "a", At: relist.Add(time.Hour)})
		emit(probe.Event{Type: "ContainerDied", ID: "b", At: relist})
		emit(probe.Event{Type: "PodSync", At: relist})
		<-ctx.Done()
		return context.Cause(ctx)
	})
	r := benchtest.Start(ask, map[string]int{"ContainerDied": 2, "PodSync": 1}, time.Minute)
	died := r.Seen["ContainerDied"]
	if !r.Done || died.Count != 2 || r.Seen["PodSync"].Count != 1 {
		t.Errorf("report is %+v", r)
	}
	if died.LastMS < 0 || died.LastMS > 60_000 {
		t.Errorf("last after %v ms of the earlier relist", died.LastMS)
	}
	if len(r.Log) != 3 || r.Log[1].ID != "b" {
		t.Errorf("log is %+v", r.Log)
	}
	if r.Usage.WallSeconds <= 0 || r.Usage.Allocs == 0 {
		t.Errorf("usage is %+v", r.Usage)
	}
	ask(control.Command{Do: control.ClientExpect})
	if r := ask(control.Command{Do: control.ClientReport}); len(r.Seen) != 0 || !r.Done {
		t.Errorf("a new window has %+v", r)
	}
	end(nil)
}

func TestWaitEndsAtItsTimeout(t *testing.T) {
	ask, end := benchtest.Serve(t, func(ctx context.Context, _ func(probe.Event)) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if r := benchtest.Start(ask, map[string]int{"ContainerDied": 1}, time.Millisecond); r.Done {
		t.Errorf("done without the event: %+v", r)
	}
	end(nil)
}

func TestServeReturnsCandidateError(t *testing.T) {
	boom := errors.New("boom")
	ask, end := benchtest.Serve(t, func(context.Context, func(probe.Event)) error { return boom })
	if r := benchtest.Start(ask, map[string]int{"ContainerDied": 1}, time.Minute); !strings.Contains(r.Err, "boom") {
		t.Errorf("report is %+v, want the error", r)
	}
	end(boom)
}

func TestServeRejectsUnknownCommandAndBadMessage(t *testing.T) {
	ask, end := benchtest.Serve(t, nil)
	if r := ask(control.Command{Do: "dance"}); !strings.Contains(r.Err, `unknown command "dance"`) {
		t.Errorf("report is %+v", r)
	}
	end(nil)
	err := probe.Serve(t.Context(), nil, strings.NewReader("{\n"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "control message") {
		t.Errorf("Serve of a bad message = %v", err)
	}
}
