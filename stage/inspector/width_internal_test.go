package inspector

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// run has the width judge n inspections, each of which takes what the runtime
// makes of the width at that time.
func (w *width) run(n int, took func(width int) time.Duration) {
	pod := &pleg.Pod{Containers: make([]*pleg.Container, 2), Sandboxes: make([]*pleg.Container, 1)}
	for range n {
		w.measure(pod, took(w.now), w.turnOf(w.now, 0))
	}
}

func TestWidth(t *testing.T) {
	const ms = time.Millisecond
	// serves returns the times of a runtime that serves many pods at once.
	serves := func(many int, each time.Duration) func(int) time.Duration {
		return func(width int) time.Duration { return each * time.Duration(max(width, many)) / time.Duration(many) }
	}
	for _, c := range []struct {
		name     string
		then     func(int) time.Duration
		min, max int
	}{
		{"serves all, as fast as before", serves(32, ms), 32, 32},
		{"serves all, but slower", serves(32, 12*ms), 32, 32},
		{"serves eight", serves(8, ms), 8, 24},
		{"serves four", serves(4, ms), 4, 12},
		{"serves one", serves(1, ms), 4, 5}, // about the least
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWidth(32)
			w.run(100, serves(32, ms))
			w.run(5000, c.then)
			lowest, highest := w.now, w.now
			for range 500 {
				w.run(1, c.then)
				lowest, highest = min(lowest, w.now), max(highest, w.now)
			}
			if lowest < c.min || highest > c.max {
				t.Errorf("width %d to %d, want within %d to %d", lowest, highest, c.min, c.max)
			}
		})
	}
}

func slowed(by time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return by * time.Millisecond }
}

func TestWidthRecoversFromASlowerRuntimeAtOnce(t *testing.T) {
	w := newWidth(16)
	w.run(window+3*minSamples-2, slowed(1))
	w.turnOf(1, apart) // a burst ended before it could be judged, and this is the next
	w.run(minSamples, slowed(12))
	if w.now != 10 {
		t.Errorf("width %d after a judgement, want a trial with 10", w.now)
	}
	w.run(minSamples, slowed(12))
	if w.now != 16 {
		t.Errorf("width %d after two judgements, want 16 again", w.now)
	}
}

// At the least width no trial is possible. The width grows again after a while.
func TestWidthComesBackFromTheLeast(t *testing.T) {
	w := newWidth(16)
	w.run(window, slowed(1))
	w.now = w.least
	w.run(500, slowed(12))
	if w.now != 16 {
		t.Errorf("width %d of a runtime that stays slower, want 16", w.now)
	}
}

// The time of rarely inspected pods is cleared, and no time grows without bound.
func TestWidthForgets(t *testing.T) {
	rare := &pleg.Pod{Containers: make([]*pleg.Container, 30)}
	w := newWidth(16)
	for range window {
		w.measure(rare, time.Millisecond, 0)
	}
	w.run(window, slowed(1))
	w.now = w.least
	w.run(10*minSamples, slowed(12))
	for i, c := range w.classes {
		if i == 5 && c.alone != 0 || c.alone < 0 || c.alone > 12*time.Millisecond {
			t.Errorf("alone is %v for class %d", c.alone, i)
		}
	}
	w.classes[2].sampled = true
	for range 1000 {
		w.forget(10)
	}
	if alone := w.classes[2].alone; alone != longest {
		t.Errorf("alone is %v, want no more than %v", alone, longest)
	}
}
