package kit

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// Drain returns the events that wait in a channel.
func Drain(events <-chan pleg.Event) []pleg.Event {
	var got []pleg.Event
	for {
		select {
		case ev, open := <-events:
			if !open {
				return got
			}
			got = append(got, ev)
		default:
			return got
		}
	}
}

// Read returns the events that a subscription can read now.
func Read(t testing.TB, sub pleg.Subscription) (got []pleg.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond) // passes once all wait
	defer cancel()
	for ev, err := range sub.All(ctx) {
		if err != nil {
			break
		}
		got = append(got, ev)
	}
	return got
}

// ByPod returns the events of each pod, in order.
func ByPod(events []pleg.Event) map[pleg.PodUID][]pleg.Event {
	pods := make(map[pleg.PodUID][]pleg.Event)
	for _, ev := range events {
		pods[ev.PodUID] = append(pods[ev.PodUID], ev)
	}
	return pods
}

// WordsByPod returns the [plegtest.Words] of the events of each pod.
func WordsByPod(events []pleg.Event) map[pleg.PodUID]string {
	words := make(map[pleg.PodUID]string)
	for uid, evs := range ByPod(events) {
		words[uid] = plegtest.Words(evs...)
	}
	return words
}

// RequireEvents fails unless exactly these events wait in the channel; want
// alternates between a pod UID and the words of its events.
func RequireEvents(t testing.TB, events <-chan pleg.Event, want ...string) {
	t.Helper()
	synctest.Wait()
	got := WordsByPod(Drain(events))
	for i := 0; i < len(want); i += 2 {
		uid := pleg.PodUID(want[i])
		if got[uid] != want[i+1] {
			t.Errorf("events of pod %s: %q, want %q", uid, got[uid], want[i+1])
		}
		delete(got, uid)
	}
	for uid, words := range got {
		t.Errorf("events of pod %s: %q, want none", uid, words)
	}
}

// Subscriber collects the events of one subscription. Its reader calls Add for each
// and closes Done at the end.
type Subscriber struct {
	// See, if not nil, is called by Add with each event.
	See func(pleg.Event)
	// Close ends the subscription.
	Close func()
	Done  chan struct{}

	mu     sync.Mutex
	events []pleg.Event
}

// NewSubscriber returns a subscriber without events. see may be nil.
func NewSubscriber(see func(pleg.Event), end func()) *Subscriber {
	return &Subscriber{See: see, Close: end, Done: make(chan struct{})}
}

// Add adds an event.
func (s *Subscriber) Add(ev pleg.Event) {
	s.mu.Lock()
	s.events = append(s.events, ev)
	s.mu.Unlock()
	if s.See != nil {
		s.See(ev)
	}
}

// Events returns all events so far.
func (s *Subscriber) Events() []pleg.Event {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Metric returns the sum of a metric's counters and gauges, and of the counts of its histograms;
// with label values, of the series with all of them. It is 0 if there is no such series.
func Metric(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// RequireMetric fails unless [Metric] is want.
func RequireMetric(t testing.TB, from prometheus.Gatherer, want float64, name string, labels ...string) {
	t.Helper()
	if got := Metric(t, from, name, labels...); got != want {
		t.Errorf("%s %q = %v, want %v", name, labels, got, want)
	}
}

// RequireSum fails unless the observations of a histogram add up to want.
func RequireSum(t testing.TB, from prometheus.Gatherer, want float64, name string) {
	t.Helper()
	families, err := from.Gather()
	Must(t, err)
	sum := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	if math.Abs(sum-want) > 1e-6 {
		t.Errorf("the observations of %s add up to %v, want %v", name, sum, want)
	}
}

func hasLabels(m *dto.Metric, values []string) bool {
	for _, value := range values {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value }) {
			return false
		}
	}
	return true
}

// Log keeps the log's records.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String implements [fmt.Stringer].
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Count returns the number of lines that contain words.
func (l *Log) Count(words string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}

// RequireLines fails unless exactly count lines contain words.
func (l *Log) RequireLines(t testing.TB, count int, words string) {
	t.Helper()
	if got := l.Count(words); got != count {
		t.Errorf("%d log lines contain %q, want %d", got, words, count)
	}
}
