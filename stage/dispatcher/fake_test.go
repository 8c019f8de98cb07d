package dispatcher_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at returns the time of the nth listing.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// bed is a dispatcher in a bubble; the test is its inspector.
type bed struct {
	*dispatcher.Dispatcher
	in    chan stage.Outcome
	ended chan error
	stop  func()
}

// newBed returns a dispatcher that is yet to run.
func newBed(t *testing.T, metrics instrument.Registry) *bed {
	t.Helper()
	d, err := dispatcher.New(dispatcher.Options{
		History: 100, SlowAfter: 30 * time.Second, Logger: slog.New(slog.DiscardHandler), Metrics: metrics,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	b := &bed{Dispatcher: d, in: make(chan stage.Outcome), ended: make(chan error, 1)}
	b.stop = sync.OnceFunc(func() { close(b.in) })
	return b
}

func (b *bed) run(t *testing.T) {
	t.Helper()
	go func() { b.ended <- b.Run(b.in) }()
	t.Cleanup(b.stop)
}

// running returns a dispatcher at work.
func running(t *testing.T) *bed {
	t.Helper()
	b := newBed(t, instrument.Registry{})
	b.run(t)
	return b
}

func (b *bed) subscribe(t *testing.T, o dispatcher.SubscribeOptions) *dispatcher.Subscription {
	t.Helper()
	s, err := b.Subscribe(o)
	if err != nil {
		t.Fatalf("Subscribe(%+v): %v", o, err)
	}
	return s
}

// publish sends the outcome of a pod that has these events, such as
// "Started(c) Died(/s)", and waits until it is delivered.
func (b *bed) publish(uid pleg.PodUID, words string) {
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
	b.in <- o
	synctest.Wait()
}

// noticed is more than the time after which the dispatcher notices that a
// subscriber reads again.
const noticed = 20 * time.Millisecond

// read takes the events that are there, until the channel is empty and nothing
// follows. It fails unless their sequence numbers grow.
func read(t *testing.T, s *dispatcher.Subscription) []pleg.Event {
	t.Helper()
	var got []pleg.Event
	for waited := false; ; {
		select {
		case ev, ok := <-s.Events():
			if !ok {
				return got
			}
			if len(got) > 0 && ev.Seq <= got[len(got)-1].Seq {
				t.Errorf("event number %d after %d", ev.Seq, got[len(got)-1].Seq)
			}
			got = append(got, ev)
			waited = false
		default:
			if waited {
				return got
			}
			time.Sleep(noticed)
			synctest.Wait()
			waited = true
		}
	}
}

// tell returns the events as words, each with its pod and, if it stands for
// others, how many.
func tell(events []pleg.Event) string {
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
	if got := tell(read(t, s)); got != want {
		t.Errorf("subscriber %s got %q, want %q", s.Name(), got, want)
	}
}

// requireClosed fails unless the channel is closed once it is drained.
func requireClosed(t *testing.T, s *dispatcher.Subscription) {
	t.Helper()
	synctest.Wait()
	for range cap(s.Events()) + 1 {
		select {
		case _, ok := <-s.Events():
			if !ok {
				return
			}
		default:
			t.Fatalf("the channel of subscriber %s is open", s.Name())
		}
	}
	t.Fatalf("the channel of subscriber %s does not end", s.Name())
}

func seqs(events []pleg.Event) []uint64 {
	var seqs []uint64
	for _, ev := range events {
		seqs = append(seqs, ev.Seq)
	}
	return slices.Clip(seqs)
}

// outcome is that of a pod whose nth container has started.
func outcome(uid pleg.PodUID, n int) stage.Outcome {
	return stage.Outcome{UID: uid, Pod: plegtest.Pod(uid, ""), Events: []pleg.Event{{
		Type: pleg.ContainerStarted, PodUID: uid, ContainerID: pleg.ContainerID(fmt.Sprint(n)),
	}}}
}
