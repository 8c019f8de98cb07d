package dispatcher_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

// at returns the time of the nth listing.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// fixture is a dispatcher in a bubble. The test acts as the inspector.
type fixture struct {
	*dispatcher.Dispatcher
	in    chan stage.Outcome
	marks chan stage.Mark
	stop  func()
}

// newFixture returns a dispatcher that does not run yet.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	d, err := dispatcher.New(dispatcher.Options{
		History: 100, SlowAfter: 30 * time.Second, Logger: discard,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	f := &fixture{Dispatcher: d, in: make(chan stage.Outcome), marks: make(chan stage.Mark)}
	f.stop = sync.OnceFunc(func() { close(f.in) })
	return f
}

// start has the dispatcher run until the test ends.
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

// run is start with the initial state, which has no pods.
func (f *fixture) run(t *testing.T) {
	t.Helper()
	f.start(t)
	f.marks <- stage.Mark{Current: at(0)}
}

// testDispatcher runs a test with a running dispatcher in a bubble.
func testDispatcher(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.run(t)
		test(t, f)
	})
}

func (f *fixture) subscribe(t *testing.T, o pleg.SubscribeOptions) *dispatcher.Subscription {
	t.Helper()
	s, err := f.Subscribe(o)
	if err != nil {
		t.Fatalf("Subscribe(%+v): %v", o, err)
	}
	return s
}

// outcome returns one with these events, such as "Started(c) Died(/s)".
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

// publish sends an outcome and waits until it is delivered.
func (f *fixture) publish(uid pleg.PodUID, words string) { f.publishLabelled(uid, words, nil) }

// publishLabelled is publish for a pod with these labels; nil if they are not known.
func (f *fixture) publishLabelled(uid pleg.PodUID, words string, labels map[string]string) {
	o := outcome(uid, words)
	o.Pod.Labels = labels
	f.in <- o
	synctest.Wait()
}

// resumeTime is longer than the dispatcher takes to see that a subscriber reads
// again.
const resumeTime = 20 * time.Millisecond

// read returns the events in the channel, until it stays empty. Their sequence
// numbers must grow; a mark may have that of the event before it.
func read(t *testing.T, s *dispatcher.Subscription) []pleg.Event {
	t.Helper()
	var got []pleg.Event
	for waited := false; ; {
		select {
		case ev, ok := <-s.Events():
			if !ok {
				return got
			}
			if last := len(got) - 1; last >= 0 && (ev.Seq < got[last].Seq || ev.Seq == got[last].Seq && ev.PodUID != "") {
				t.Errorf("event number %d after %d", ev.Seq, got[len(got)-1].Seq)
			}
			got = append(got, ev)
			waited = false
		default:
			if waited {
				return got
			}
			time.Sleep(resumeTime)
			synctest.Wait()
			waited = true
		}
	}
}

// wordsOf returns the events as words, such as "a:Died(c)" or "a:PodSync*2" for
// one with Missed 2.
func wordsOf(events []pleg.Event) string {
	words := make([]string, len(events))
	for i, ev := range events {
		words[i] = fmt.Sprintf("%s:%s", ev.PodUID, plegtest.Words(ev))
		if ev.Missed > 0 {
			words[i] += fmt.Sprintf("*%d", ev.Missed)
		}
	}
	return strings.Join(words, " ")
}

func requireRead(t *testing.T, s *dispatcher.Subscription, want string) {
	t.Helper()
	if got := wordsOf(read(t, s)); got != want {
		t.Errorf("subscriber %s got %q, want %q", s.Name(), got, want)
	}
}

// requireClosed drains the channel, which must then be closed.
func requireClosed(t *testing.T, s *dispatcher.Subscription) {
	t.Helper()
	synctest.Wait()
	if got := len(kit.Drain(s.Events())); got > cap(s.Events()) {
		t.Fatalf("the channel of subscriber %s has %d events, more than its capacity", s.Name(), got)
	}
	select {
	case <-s.Events(): // it is empty, so it is closed
	default:
		t.Fatalf("the channel of subscriber %s is open", s.Name())
	}
}
