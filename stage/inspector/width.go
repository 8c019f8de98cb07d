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
	// comfort is how much longer than alone inspections may take for the width to
	// grow. Between the two it stays, or it would go up and down for ever.
	comfort = 1.5
	// minSamples is the number of inspections that the width is judged by, at
	// least; where they differ a lot it takes more, up to maxSamples.
	minSamples = 8
	maxSamples = 128
	// likeness is how far apart two values of a sample may be, between which the
	// quantile of the whole lies, for a judgement before maxSamples.
	likeness = 1.3

	// A trial takes this part of the width, and one that follows a trial that
	// helped takes smallestTrial at least.
	trialPart     = 2. / 3
	smallestTrial = 0.5
	// gain says when a trial has helped: if the mean time fell to the part of the
	// width that is left, to this power, at least. Were it 1, noise would decide.
	gain = 0.75
	// maxFutile bounds the judgements between two trials, which are 2 to the power
	// of the trials in vain.
	maxFutile = 4

	// apart is how long after the last inspection one that begins belongs to
	// another burst.
	apart = 100 * time.Millisecond
	// longest bounds what is taken for the time of an inspection alone.
	longest = time.Hour
)

// width is the number of pods inspected at once. It follows what the runtime
// can serve, below a bound: inspections beyond that only wait, and load the
// runtime while they do. It grows while inspections take about as long as alone.
// When they take longer a third is taken off for a trial, to see whether it is for
// each other that they wait: only then does it stay less than it was.
type width struct {
	bound int
	// least keeps a pod that hangs, and does not count as hung yet, from
	// stopping all others.
	least int
	now   int
	// classes are pods that may be compared, by the logarithm of the number of
	// their containers.
	classes [bits.UintSize + 1]class
	// ratios are the times of the inspections of this turn, each divided by that
	// alone.
	ratios []float64
	// turn numbers the judgements.
	turn int
	// trial is what there was before the trial under way, if there is one.
	trial trial
	// futile is the number of trials in vain, halved by each that helped. Before
	// the next there are wait judgements.
	futile, wait int
}

// trial holds the width and the mean of the ratios before a trial.
type trial struct {
	width int
	mean  float64
}

func newWidth(bound int) width {
	return width{bound: bound, least: min(bound, max(2, bound/8)), now: bound, turn: 1}
}

// begin returns what an inspection that begins, as the nth in flight, is to say
// of the width: the turn it counts for, 0 for none. Only those that begin with
// all of the width as it is in use can tell what it does. If it is the first,
// nothing has been in flight for idle.
func (w *width) begin(n int, idle time.Duration) (turn int) {
	if n == 1 && idle >= apart {
		w.ratios = w.ratios[:0] // the runtime may have changed since
	}
	if n < w.now || w.least == w.bound {
		return 0
	}
	return w.turn
}

// observe takes the time of an inspection that succeeded, and its turn.
func (w *width) observe(pod *pleg.Pod, took time.Duration, turn int) {
	c := &w.classes[bits.Len(uint(len(pod.Containers)+len(pod.Sandboxes)))]
	if w.trial.width == 0 { // else what is compared would change
		c.learn(took)
	}
	if turn != w.turn || c.alone == 0 {
		return
	}
	c.sampled = true
	w.ratios = append(w.ratios, float64(took)/float64(c.alone))
	if len(w.ratios) < max(minSamples, w.now/2) {
		return
	}
	slices.Sort(w.ratios)
	low, sure := eighth(w.ratios)
	if !sure && len(w.ratios) < maxSamples {
		return
	}
	w.judge(low, mean(w.ratios))
	w.ratios = w.ratios[:0]
	for i := range w.classes {
		w.classes[i].sampled = false
	}
	w.turn++
}

// judge sets the width by the ratios of a turn: one that an eighth of them are
// below, and their mean. By Little's law the mean tells the rate.
func (w *width) judge(low, mean float64) {
	if w.trial.width > 0 {
		w.conclude(low, mean)
		return
	}
	w.wait = max(0, w.wait-1)
	switch {
	case low < comfort:
		w.now = min(w.bound, w.now+max(1, w.now/4))
	case w.now == w.least:
		// Nothing can be learnt by shrinking, so this is forgotten slowly.
		w.forget(1.125)
	case low > tolerance && w.wait == 0:
		w.try(trialPart, mean)
	}
}

// conclude ends a trial.
func (w *width) conclude(low, mean float64) {
	before := w.trial
	w.trial = trial{}
	slower := max(low, 1)
	switch {
	case mean > before.mean*math.Pow(float64(w.now)/float64(before.width), gain):
		// Fewer at once were hardly faster: they did not wait for each other.
		// The runtime takes longer now, however many it serves.
		w.forget(slower)
		w.now = before.width
		w.wait = 1 << w.futile
		w.futile = min(w.futile+1, maxFutile)
	case low > tolerance && w.now > w.least:
		w.futile /= 2
		w.try(min(trialPart, max(smallestTrial, tolerance/low)), mean)
	default:
		w.futile /= 2
		// Back to where the tolerance seems to be, but not to where it was too much.
		w.now = max(w.now, min(int(float64(w.now)*tolerance/slower), before.width*4/5))
	}
}

// try begins a trial with a part of the width.
func (w *width) try(part, mean float64) {
	w.trial = trial{width: w.now, mean: mean}
	w.now = max(w.least, int(float64(w.now)*part))
}

// forget has inspections take that much longer alone. Of pods that this was not
// judged by nothing is known any more.
func (w *width) forget(factor float64) {
	for i := range w.classes {
		c := &w.classes[i]
		c.recent = c.recent[:0]
		if c.sampled {
			c.alone = time.Duration(min(float64(longest), float64(c.alone)*factor))
		} else {
			c.alone = 0
		}
	}
}

// window is the number of inspections in a row that tell the time alone. The
// first to end of a burst are among those that did not wait for the others, if the
// runtime serves them in turn.
const window = 16

// class is what is known of pods of about as many containers.
type class struct {
	// alone is the shortest time that two inspections of a window took, since the
	// runtime's time was last found to have changed; 0 before there was one. A
	// single one may be far shorter than is usual.
	alone  time.Duration
	recent []time.Duration
	// sampled is whether inspections of this turn were.
	sampled bool
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

// eighth returns the value that an eighth of sorted ones are below, as about an
// eighth of a window is below [class.alone], and whether it is known well: the two
// values that it lies between in two samples of three are alike.
func eighth(sorted []float64) (value float64, sure bool) {
	n := len(sorted)
	deviation := max(1, int(math.Sqrt(7*float64(n))/8)) // of the rank
	return sorted[n/8], sorted[n/8+deviation] <= likeness*sorted[max(0, n/8-deviation)]
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
