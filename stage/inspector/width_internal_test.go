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
		w.observe(pod, took(w.now), w.begin(w.now))
	}
}

func TestWidth(t *testing.T) {
	const ms = time.Millisecond
	// serves returns a runtime that serves so many pods at once.
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

func TestWidthRecoversFromASlowerRuntimeAtOnce(t *testing.T) {
	w := newWidth(16)
	w.run(15+3*16-1, func(int) time.Duration { return time.Millisecond })
	w.begin(1) // a burst ended before it could be judged, and this is the next
	w.run(16+10, func(int) time.Duration { return 12 * time.Millisecond })
	if w.now != 16 {
		t.Errorf("width %d after two judgements, want 16 again", w.now)
	}
}
