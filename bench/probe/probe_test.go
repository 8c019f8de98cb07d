package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/bench/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve sends commands to a candidate and returns the answers and the error of Serve.
func serve(t *testing.T, candidate probe.Candidate, commands ...probe.Command) (reports []probe.Report, err error) {
	t.Helper()
	in, out := io.Pipe()
	var text strings.Builder
	for _, c := range commands {
		if err := json.NewEncoder(&text).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		err = probe.Serve(t.Context(), candidate, strings.NewReader(text.String()), out)
		out.Close()
	}()
	for answers := json.NewDecoder(in); ; {
		var r probe.Report
		if answers.Decode(&r) != nil {
			return reports, err
		}
		reports = append(reports, r)
	}
}

func start(want map[string]int, timeout time.Duration) []probe.Command {
	return []probe.Command{
		{Do: probe.ExpectEvents, Want: want},
		{Do: probe.StartCandidate},
		{Do: probe.WaitForEvents, TimeoutMS: int(timeout.Milliseconds())},
		{Do: probe.ExpectEvents},
		{Do: probe.WaitForEvents},
	}
}

func TestWindowMeasuresFromItsRelist(t *testing.T) {
	relist := time.Now()
	reports, err := serve(t, func(ctx context.Context, emit func(probe.Event)) error {
		emit(probe.Event{Type: "ContainerDied", ID: "a", At: relist.Add(time.Hour)})
		emit(probe.Event{Type: "ContainerDied", ID: "b", At: relist})
		emit(probe.Event{Type: "PodSync", At: relist})
		<-ctx.Done()
		return context.Cause(ctx)
	}, start(map[string]int{"ContainerDied": 2, "PodSync": 1}, time.Minute)...)
	if err != nil || len(reports) != 5 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	r := reports[2]
	died := r.Seen["ContainerDied"]
	if !r.Done || died.Count != 2 || r.Seen["PodSync"].Count != 1 || len(r.Log) != 3 || r.Log[1].ID != "b" {
		t.Errorf("report is %+v", r)
	}
	if died.LastMS < 0 || died.LastMS > 60_000 {
		t.Errorf("last after %v ms of the earlier relist", died.LastMS)
	}
	if r := reports[4]; len(r.Seen) != 0 || !r.Done {
		t.Errorf("a new window has %+v", r)
	}
}

func TestServeReportsWhatFails(t *testing.T) {
	boom := errors.New("boom")
	fails := func(context.Context, func(probe.Event)) error { return boom }
	waits := func(ctx context.Context, _ func(probe.Event)) error { <-ctx.Done(); return context.Cause(ctx) }
	one := map[string]int{"ContainerDied": 1}
	if reports, err := serve(t, fails, start(one, time.Minute)...); !errors.Is(err, boom) || !strings.Contains(reports[2].Err, "boom") {
		t.Errorf("a candidate that fails: %+v, %v", reports, err)
	}
	if reports, err := serve(t, waits, start(one, time.Millisecond)...); err != nil || reports[2].Done {
		t.Errorf("a candidate without events: %+v, %v", reports, err)
	}
	if reports, err := serve(t, nil, probe.Command{Do: "dance"}); err != nil || !strings.Contains(reports[0].Err, `unknown command "dance"`) {
		t.Errorf("an unknown command: %+v, %v", reports, err)
	}
	if err := probe.Serve(t.Context(), nil, strings.NewReader("{\n"), io.Discard); err == nil || !strings.Contains(err.Error(), "control message") {
		t.Errorf("a bad message: %v", err)
	}
}
