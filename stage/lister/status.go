package lister

import (
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Relist is the result of the relists so far.
type Relist struct {
	// Success is when the newest successful list began; zero before the first. Took
	// is its duration, Pods the number of pods in it.
	Success time.Time
	Took    time.Duration
	Pods    int
	// Began is the tick at which it began.
	Began uint64
	// Err is the error of the newest list after it; nil if there is none. Failing is
	// when the first of these lists began, Failures their number.
	Err      error
	Failing  time.Time
	Failures int
	// FailedAfter is how long the newest list took, if it failed.
	FailedAfter time.Duration
}

// LastBegan returns the tick at which the newest successful list began; 0 before the first.
func (l *Lister) LastBegan() uint64 { return l.Last().Began }

// Last returns the result of the relists so far.
func (l *Lister) Last() Relist { return *l.last.Load() }

// Healthy reports whether the last successful list is younger than the threshold,
// and if not, why.
func (l *Lister) Healthy() (bool, error) {
	last := l.Last()
	if last.Success.IsZero() {
		return false, because("pleg has yet to be successful", last.Err)
	}
	if elapsed := time.Since(last.Success); elapsed > l.opts.RelistThreshold {
		return false, because(fmt.Sprintf("pleg was last seen active %v ago; threshold is %v", elapsed, l.opts.RelistThreshold), last.Err)
	}
	return true, nil
}

func because(what string, err error) error {
	if err == nil {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Status returns the lists so far, the list in progress and the period. It is safe for
// concurrent use. It has no Call.
func (l *Lister) Status() pleg.RelistStatus {
	last := l.Last()
	s := pleg.RelistStatus{
		Success: last.Success, Took: last.Took, Pods: last.Pods,
		Err: last.Err, Failing: last.Failing, Failures: last.Failures, FailedAfter: last.FailedAfter, Period: l.period(),
	}
	if started := l.running.Load(); started != nil {
		s.Started = *started
	}
	return s
}

// age returns how long the list in progress has been running, in seconds.
func (l *Lister) age() float64 {
	start := l.running.Load()
	if start == nil {
		return 0
	}
	return time.Since(*start).Seconds()
}

// failed returns the result after one more list, which failed.
func (r Relist) failed(start time.Time, err error) *Relist {
	if r.Failures == 0 {
		r.Failing = start
	}
	r.Failures++
	r.Err, r.FailedAfter = err, time.Since(start)
	return &r
}
