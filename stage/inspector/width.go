package inspector

import (
	"math/bits"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// tolerance is how much longer than alone an inspection may take before it
	// is taken for waiting in the runtime. On two cores containerd serves four
	// calls at once at 1.8 times the time of one, and no more per second
	// beyond.
	tolerance = 2
	// minSamples is the number of inspections that a change of the width is
	// judged by.
	minSamples = 8
)

// width is the number of pods inspected at once. It follows what the runtime
// can serve, below a bound: inspections beyond that only wait, and load the
// runtime while they do. It grows while inspections take about as long as alone
// and shrinks while they take longer, unless shrinking shows that it is not for
// each other that they wait.
type width struct {
	bound int
	// least keeps a pod that hangs, and does not count as hung yet, from
	// stopping all others.
	least int
	now   int
	// alone is the shortest time of an inspection since the runtime's time was
	// last found to have changed, by the logarithm of the number of containers.
	alone  [bits.UintSize + 1]time.Duration
	ratios []float64
	// turn numbers the judgements.
	turn int
	// shrunk is the width, and ratio the time, that the last judgement shrank;
	// 0 if it did not.
	shrunk int
	ratio  float64
}

func newWidth(bound int) width {
	return width{bound: bound, least: min(bound, max(2, bound/8)), now: bound, turn: 1}
}

// begin returns what an inspection that begins, as the nth in flight, is to say
// of the width: the turn it counts for, 0 for none. Only those that begin with
// the width as it is, and most of it in use, can tell what it does.
func (w *width) begin(n int) (turn int) {
	if n <= w.now/2 {
		return 0
	}
	return w.turn
}

// observe takes the time of an inspection that succeeded, and its turn.
func (w *width) observe(pod *pleg.Pod, took time.Duration, turn int) {
	alone := &w.alone[bits.Len(uint(len(pod.Containers)+len(pod.Sandboxes)))]
	if *alone == 0 || took < *alone {
		*alone = max(took, 1)
	}
	if turn != w.turn {
		return
	}
	w.ratios = append(w.ratios, float64(took)/float64(*alone))
	if len(w.ratios) < max(minSamples, w.now) {
		return
	}
	slices.Sort(w.ratios)
	w.judge(w.ratios[len(w.ratios)/2])
	w.ratios = w.ratios[:0]
	w.turn++
}

func (w *width) judge(ratio float64) {
	shrunk := w.shrunk
	w.shrunk = 0
	switch {
	case shrunk > 0 && ratio > w.ratio*float64(shrunk+w.now)/float64(2*shrunk):
		// Fewer at once were hardly faster: they did not wait for each other.
		// The runtime takes longer now, however many it serves.
		w.forget(ratio)
		w.now = shrunk
	case ratio > tolerance && w.now == w.least:
		// Nothing can be learnt by shrinking, so this is forgotten slowly.
		w.forget(1.125)
	case ratio > tolerance:
		before := w.now
		w.now = max(w.least, int(float64(before)*min(0.75, max(0.5, tolerance/ratio))))
		if 4*w.now <= 3*before { // else too little has changed to show
			w.shrunk, w.ratio = before, ratio
		}
	default:
		w.now = min(w.bound, w.now+max(1, w.now/4))
	}
}

// forget has inspections take that much longer alone.
func (w *width) forget(factor float64) {
	for i := range w.alone {
		w.alone[i] = time.Duration(float64(w.alone[i]) * factor)
	}
}
