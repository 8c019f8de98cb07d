package stage

import "time"

// Earlier returns the earlier of two times; zero means no time.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// SetAlarm lets the timer of a stage fire at a time; never if that is zero.
func SetAlarm(alarm *time.Timer, at, now time.Time) {
	if at.IsZero() {
		alarm.Stop()
		return
	}
	alarm.Reset(at.Sub(now))
}
