package differ

import (
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// schedule decides when a change goes to the inspector. It has at most one change
// of each pod.
type schedule struct {
	// inspect and known hold changes that the inspector has not accepted yet:
	// those that need an inspection, and those that do not.
	inspect queue
	known   queue
	// later holds changes of dead pods until those of running pods are queued, so
	// that a cold start reports first what matters most. Its memory is reused.
	later      []stage.Change
	quarantine quarantine
}

// add schedules a change. Those of dead pods wait for flush.
func (s *schedule) add(c stage.Change) {
	switch {
	case !needsInspection(c):
		s.known.push(c)
	case c.Pod.Running():
		s.inspect.push(c)
	default:
		s.later = append(s.later, c)
	}
}

// flush queues the changes of dead pods behind all others.
func (s *schedule) flush() {
	s.inspect.push(s.later...)
	clear(s.later)
	s.later = s.later[:0]
}

// offerRetry returns the channel and the change of a select case that inspects a
// quarantined pod. The case is off while no wait has ended, or while another pod
// waits for an inspection and the retry may not go first. Until the change is accepted,
// the pod's record takes newer observations.
func (s *schedule) offerRetry(to chan<- stage.Change) (chan<- stage.Change, stage.Change) {
	rec, change := s.quarantine.nextRetry(s.inspect.len() > 0)
	if rec == nil {
		return nil, stage.Change{}
	}
	change.Retry = true
	if !rec.hang.late {
		change.Hung = rec.hang.times
	}
	return to, change
}
