package lister

import (
	"errors"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// result is the result of the lists so far, without what Status adds.
type result struct {
	pleg.RelistStatus
	began uint64 // the tick at which the newest successful list began
	up    bool   // the event stream is up
}

// LastBegan returns the tick at which the newest successful list began; 0 before the first.
func (l *Lister) LastBegan() uint64 { return l.last.Load().began }

// Healthy reports whether the last successful list is younger than the threshold,
// and if not, why.
func (l *Lister) Healthy() (bool, error) {
	last := l.last.Load()
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
// concurrent use. Its Call and Pods are empty.
func (l *Lister) Status() pleg.RelistStatus {
	s := l.last.Load().RelistStatus
	s.Period = l.period()
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
