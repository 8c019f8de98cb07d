package kit

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metric returns the sum of a metric's counters and gauges; with label values, of
// those that have all of them. It is 0 if there is no such series.
func Metric(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, values []string) bool {
	for _, value := range values {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value }) {
			return false
		}
	}
	return true
}

// Log keeps what is logged.
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

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Count returns the number of lines that contain words.
func (l *Log) Count(words string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
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
