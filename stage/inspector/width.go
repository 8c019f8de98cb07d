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
	// counts as waiting in the runtime. On two cores containerd serves four calls
	// at once at 1.8 times the time of one; more calls add no throughput.
	tolerance = 2
	// comfort is how much longer than alone inspections may take while the width
	// grows. Between comfort and tolerance it stays, so that it does not oscillate.
	comfort = 1.5
	// minSamples is the least number of inspections for a judgement. If their times
	// differ a lot it takes more, up to maxSamples.
	minSamples = 8
	maxSamples = 128
	// likeness is the largest ratio of the two sample values around the quantile
	// that allows a judgement before maxSamples.
	likeness = 1.3

	// A trial uses trialPart of the width. A trial right after a successful one may
	// use less, down to smallestTrial.
	trialPart     = 2. / 3
	smallestTrial = 0.5
	// A trial has helped if the mean time fell at least to the remaining part of
	// the width, to the power of gain. With 1, noise would decide.
	gain = 0.75
	// maxFutile bounds the wait between two trials: 2 to the power of the number of
	// trials that did not help, in judgements.
	maxFutile = 4

	// apart is the idle time after which an inspection belongs to another burst.
	apart = 100 * time.Millisecond
	// longest bounds the assumed time of an inspection alone.
	longest = time.Hour
)

// width is the number of pods inspected at once, up to a bound. It follows what the
// runtime can serve, because inspections beyond that only wait and load the runtime.
// It grows while inspections take about as long as alone. If they take longer, a
// trial removes a third of it, to find out whether they wait for each other. Only
// if they do, the width stays smaller.
type width struct {
	bound int
	// least keeps an inspection that hangs, before it counts as hung, from stopping
	// all others.
	least int
	now   int
	// classes are pods whose times can be compared, by the logarithm of the number
	// of their containers.
	classes [bits.UintSize + 1]class
	// ratios are the times of this turn's inspections, each divided by the time
	// alone.
	ratios []float64
	// turn numbers the judgements.
	turn int
	// trial has the values before the current trial, if there is one.
	trial trial
	// futile is the number of trials that did not help, halved by each that did.
	// wait is the number of judgements before the next trial.
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

// turnOf returns the turn that a new inspection counts for, 0 for none. It is the
// nth in flight; if it is the first, nothing was in flight for the time idle. Only
// an inspection that begins while the whole width is in use can judge it.
func (w *width) turnOf(n int, idle time.Duration) (turn int) {
	if n == 1 && idle >= apart {
		w.ratios = w.ratios[:0] // the runtime may have changed since
	}
	if n < w.now || w.least == w.bound {
		return 0
	}
	return w.turn
}

// measure records the time of a successful inspection, and judges the width once a
// turn has enough of them.
func (w *width) measure(pod *pleg.Pod, took time.Duration, turn int) {
	c := &w.classes[bits.Len(uint(len(pod.Containers)+len(pod.Sandboxes)))]
	if w.trial.width == 0 { // a trial compares with what was known before it
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

// judge sets the width by the ratios of a turn: their lower eighth and their mean.
// By Little's law the mean gives the rate.
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
		// Shrinking further is impossible, so the time alone is adjusted slowly.
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
		// Fewer at once were hardly faster: they did not wait for each other. The
		// runtime has become slower, whatever the width.
		w.forget(slower)
		w.now = before.width
		w.wait = 1 << w.futile
		w.futile = min(w.futile+1, maxFutile)
	case low > tolerance && w.now > w.least:
		w.futile /= 2
		w.try(min(trialPart, max(smallestTrial, tolerance/low)), mean)
	default:
		w.futile /= 2
		// Back to where the tolerance seems to be, but below where it was too much.
		w.now = max(w.now, min(int(float64(w.now)*tolerance/slower), before.width*4/5))
	}
}

// try begins a trial with a part of the width.
func (w *width) try(part, mean float64) {
	w.trial = trial{width: w.now, mean: mean}
	w.now = max(w.least, int(float64(w.now)*part))
}

// forget multiplies the time alone of the judged classes, and clears that of the
// others.
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

// window is the number of consecutive inspections that give the time alone. If the
// runtime serves a burst in order, the first to end did not wait for others.
const window = 16

// class is what is known of pods with a similar number of containers.
type class struct {
	// alone is the second shortest time of a window since the runtime last changed
	// its speed; 0 before the first window. The shortest may be an outlier.
	alone  time.Duration
	recent []time.Duration
	// sampled is set if this turn has inspections of the class.
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

// eighth returns the lower eighth of sorted values, as [class.alone] is the lower
// eighth of a window, and whether it is certain: the values one standard deviation
// of the rank around it are alike.
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
