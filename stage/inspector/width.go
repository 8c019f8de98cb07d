package inspector

import (
	"math"
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
	// comfort is up to how much longer the width still grows. Between the two it
	// stays, or it would go up and down about the tolerance.
	comfort = 1.5
	// minSamples is the number of inspections that the width is judged by, at
	// least; where they differ a lot it takes more, up to maxSamples.
	minSamples = 8
	maxSamples = 128
	// likeness is how far apart the ends of the interval may be in which the
	// quantile of what was sampled lies, for a judgement before maxSamples.
	likeness = 1.3
	// gain is the power of what is left of the width that the mean time must fall
	// to for the width to have been too great: were it 1, noise would decide. A
	// mean, as by Little's law the rate hangs on it.
	gain = 0.75
	// maxFutile bounds the judgements between two trials, which are 2 to the power
	// of the number of trials in vain.
	maxFutile = 4
)

// width is the number of pods inspected at once. It follows what the runtime
// can serve, below a bound: inspections beyond that only wait, and load the
// runtime while they do. It grows while inspections take about as long as alone.
// When they take longer a third is taken off for a trial, to see whether it is for
// each other that they wait: only then it stays less than it was.
type width struct {
	bound int
	// least keeps a pod that hangs, and does not count as hung yet, from
	// stopping all others.
	least int
	now   int
	// classes are pods that may be compared, by the logarithm of the number of
	// their containers.
	classes [bits.UintSize + 1]class
	// ratios are the times of inspections of this turn, by those alone.
	ratios []float64
	// turn numbers the judgements.
	turn int
	// before and mean are the width and the ratio before the trial under way; 0 if
	// there is none.
	before int
	mean   float64
	// futile is the number of trials in vain, less the others; wait is the number of
	// judgements before the next.
	futile, wait int
}

func newWidth(bound int) width {
	return width{bound: bound, least: min(bound, max(2, bound/8)), now: bound, turn: 1}
}

// begin returns what an inspection that begins, as the nth in flight, is to say
// of the width: the turn it counts for, 0 for none. Only those that begin with
// all of the width as it is in use can tell what it does.
func (w *width) begin(n int) (turn int) {
	if n == 1 {
		w.ratios = w.ratios[:0] // the runtime may have changed since
	}
	if n < w.now {
		return 0
	}
	return w.turn
}

// observe takes the time of an inspection that succeeded, and its turn.
func (w *width) observe(pod *pleg.Pod, took time.Duration, turn int) {
	c := &w.classes[bits.Len(uint(len(pod.Containers)+len(pod.Sandboxes)))]
	if w.before == 0 { // else what is compared would change
		c.learn(took)
	}
	if turn != w.turn || c.alone == 0 {
		return
	}
	w.ratios = append(w.ratios, float64(took)/float64(c.alone))
	if len(w.ratios) < max(minSamples, w.now) {
		return
	}
	slices.Sort(w.ratios)
	low, sure := quantile(w.ratios)
	if !sure && len(w.ratios) < maxSamples {
		return
	}
	w.judge(low, mean(w.ratios))
	w.ratios = w.ratios[:0]
	w.turn++
}

func (w *width) judge(low, mean float64) {
	before := w.before
	w.before = 0
	switch {
	case before > 0 && mean > w.mean*math.Pow(float64(w.now)/float64(before), gain):
		// Fewer at once were hardly faster: they did not wait for each other.
		// The runtime takes longer now, however many it serves.
		w.forget(low)
		w.now = before
		w.wait = 1<<w.futile - 1
		w.futile = min(w.futile+1, maxFutile)
	case before > 0 && low > tolerance && w.now > w.least:
		w.futile /= 2
		w.try(max(0.5, tolerance/low), mean)
	case before > 0:
		w.futile /= 2
		w.now = max(w.now, min(int(float64(w.now)*tolerance/low), before*4/5))
	case low < comfort:
		w.now = min(w.bound, w.now+max(1, w.now/4))
	case low <= tolerance:
	case w.now == w.least:
		// Nothing can be learnt by shrinking, so this is forgotten slowly.
		w.forget(1.125)
	case w.wait > 0:
		w.wait--
	default:
		w.try(2./3, mean)
	}
}

// try begins a trial with a part of the width.
func (w *width) try(part, mean float64) {
	w.before, w.mean = w.now, mean
	w.now = max(w.least, int(float64(w.now)*part))
}

// forget has inspections take that much longer alone.
func (w *width) forget(factor float64) {
	for i := range w.classes {
		w.classes[i].alone = time.Duration(float64(w.classes[i].alone) * factor)
	}
}

// window is the number of inspections in a row that tell the time alone. The
// first to end of a burst are among those that did not wait for the others.
const window = 16

// class is what is known of pods of about as many containers.
type class struct {
	// alone is the shortest time that two inspections of a window took, since the
	// runtime's time was last found to have changed; 0 before there was one. A
	// single one may be far shorter than is usual.
	alone  time.Duration
	recent []time.Duration
}

func (c *class) learn(took time.Duration) {
	c.recent = append(c.recent, took)
	if len(c.recent) < window {
		return
	}
	slices.Sort(c.recent)
	if second := max(c.recent[1], 1); c.alone == 0 || second < c.alone {
		c.alone = second
	}
	c.recent = c.recent[:0]
}

// quantile returns the value that an eighth of sorted ones are below, the part
// of a window that [class.alone] is above, and whether it is known well: the two
// values that it lies between in two of three samples are alike.
func quantile(sorted []float64) (value float64, sure bool) {
	n := len(sorted)
	around := int(math.Sqrt(7*float64(n)) / 8) // a standard deviation of the rank
	return sorted[n/8], sorted[n/8+around] <= likeness*sorted[max(0, n/8-around)]
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
