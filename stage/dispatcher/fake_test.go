package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	discard    = slog.New(slog.DiscardHandler)
	errNothing = errors.New("there is nothing to read")
)

// at returns the time of the nth listing.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// fixture is a dispatcher in a bubble. The test acts as the inspector.
type fixture struct {
	*dispatcher.Dispatcher
	in    chan stage.Outcome
	marks chan stage.Mark
	stop  func()
	// synced is the position when the dispatcher last said that the first list is published.
	synced pleg.Position
}

// history is the length of the log of most tests.
const history = 100

// newFixture returns a dispatcher that does not run yet.
func newFixture(t *testing.T, history int, logger *slog.Logger, metrics ...prometheus.Registerer) *fixture {
	t.Helper()
	f := &fixture{in: make(chan stage.Outcome), marks: make(chan stage.Mark)}
	var err error
	o := dispatcher.Options{
		History: history, SlowAfter: 30 * time.Second, Logger: logger, Synced: func() { f.synced = f.Position() },
		Status: func(uid pleg.PodUID) *pleg.PodStatus { return &pleg.PodStatus{UID: uid} },
	}
	for _, registry := range metrics {
		o.Metrics.Registerer = registry
	}
	f.Dispatcher, err = dispatcher.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	f.stop = sync.OnceFunc(func() { close(f.in) })
	return f
}

// start runs the dispatcher until the test ends.
func (f *fixture) start(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(f.in, f.marks) }()
	t.Cleanup(func() {
		f.stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// run is start with the initial state, which contains no pods.
func (f *fixture) run(t *testing.T) {
	t.Helper()
	f.start(t)
	f.marks <- stage.Mark{Current: at(0)}
}

// testDispatcher runs a test with a running dispatcher in a bubble.
func testDispatcher(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, history, discard)
		f.run(t)
		test(t, f)
	})
}

func (f *fixture) subscribe(t *testing.T, o pleg.SubscribeOptions) pleg.Subscription {
	t.Helper()
	s, err := f.Subscribe(o)
	if err != nil {
		t.Fatalf("Subscribe(%+v): %v", o, err)
	}
	return s
}

// outcome returns an outcome with these events, such as "Started(c) Died(/s)".
func outcome(uid pleg.PodUID, words string) stage.Outcome {
	o := stage.Outcome{UID: uid, Pod: plegtest.Pod(uid, "")}
	for word := range strings.FieldsSeq(words) {
		name, rest, _ := strings.Cut(word, "(")
		id, sandbox := strings.CutPrefix(strings.TrimSuffix(rest, ")"), "/")
		if name != string(pleg.PodSync) {
			name = "Container" + name
		}
		o.Events = append(o.Events, pleg.Event{
			Type: pleg.EventType(name), PodUID: uid, PodName: "name-" + string(uid), PodNamespace: "ns",
			ContainerID: pleg.ContainerID(id), Sandbox: sandbox, ObservedAt: at(1),
		})
	}
	return o
}

// publish sends an outcome and waits until it is published.
func (f *fixture) publish(uid pleg.PodUID, words string) { f.publishLabelled(uid, words, nil) }

// publishLabelled is publish for a pod with these labels.
func (f *fixture) publishLabelled(uid pleg.PodUID, words string, labels map[string]string) {
	o := outcome(uid, words)
	o.Pod.Labels = labels
	f.in <- o
	synctest.Wait()
}

// remove publishes the last events of a pod that is gone.
func (f *fixture) remove(uid pleg.PodUID, words string) {
	o := outcome(uid, words)
	o.Pod = nil
	f.in <- o
	synctest.Wait()
}

// mark sends a mark and waits until it is published.
func (f *fixture) mark(m stage.Mark) {
	f.marks <- m
	synctest.Wait()
}

// read returns the events to read, and how the reading ended; nil if more may come.
func read(t *testing.T, s pleg.Subscription) (got []pleg.Event, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errNothing) // passes once all wait
	defer cancel()
	for {
		ev, err := s.Next(ctx)
		if errors.Is(err, errNothing) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if isMark := ev.PodUID == "" && ev.Type != pleg.Bookmark; isMark && time.Since(ev.ObservedAt) > time.Second {
			t.Errorf("%s of %v, want the time of the mark", ev.Type, ev.ObservedAt)
		}
		if ev.Status != nil || ev.Epoch == "" {
			t.Errorf("%+v has a status, which nobody asked for, or no epoch", ev)
		}
		got = append(got, ev)
	}
}

// wordsOf returns the events as words, such as "a:Died(c)", "=a:Died(c)" if it is replayed, and
// "Gap(HistoryTooShort)*2" for a Gap with Missed 2.
func wordsOf(events []pleg.Event) string {
	words := make([]string, len(events))
	for i, ev := range events {
		words[i] = fmt.Sprintf("%s:%s", ev.PodUID, plegtest.Words(ev))
		if ev.Replayed {
			words[i] = "=" + words[i]
		}
		if ev.Type == pleg.Gap {
			words[i] = fmt.Sprintf("Gap(%s)*%d", ev.Reason, ev.Missed)
		}
	}
	return strings.Join(words, " ")
}

func requireRead(t *testing.T, s pleg.Subscription, want string) {
	t.Helper()
	got, err := read(t, s)
	if words := wordsOf(got); words != want || err != nil {
		t.Errorf("subscriber %s got %q, %v; want %q", s.Name(), words, err, want)
	}
}

// requireEnd fails unless the subscription ends after everything that it can read.
func requireEnd(t *testing.T, s pleg.Subscription, want error) {
	t.Helper()
	if got, err := read(t, s); !errors.Is(err, want) {
		t.Errorf("subscriber %s ended with %v after %q, want %v", s.Name(), err, wordsOf(got), want)
	}
}
