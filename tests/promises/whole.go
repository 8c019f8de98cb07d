package promises

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// resumed: nothing comes that the position covers. With Replay, what has not changed since
// the position comes first. Complete checks that nothing is missing.
func (s *Stream) resumed() error {
	changed := make(map[container]bool)
	for _, ev := range s.Events {
		of := container{ev.PodUID, ev.ContainerID}
		switch {
		case ev.Type == pleg.Synced:
			return nil
		case ev.PodUID == "" || ev.Missed > 0:
		case ev.Replayed && (!s.Replay || ev.Seq > s.After.Seq || len(changed) > 0):
			return fmt.Errorf("%s is replayed after the position %d", describe(ev), s.After.Seq)
		case !ev.Replayed && ev.Seq <= s.After.Seq:
			return fmt.Errorf("%s comes again after the position %d", describe(ev), s.After.Seq)
		case !ev.Replayed:
			changed[of] = true
		}
	}
	return nil
}

// gaps: only a subscriber that cannot resume gets a Gap, as its first event.
func (s *Stream) gaps() error {
	for i, ev := range s.Events {
		if ev.Type == pleg.Gap && ev.Reason != pleg.Stopped && i > 0 {
			return fmt.Errorf("event %d is a Gap because of %s", i, ev.Reason)
		}
	}
	reason, missed, first := "", uint64(0), s.firstGap()
	switch {
	case s.After.Epoch == "":
	case s.After.Epoch != s.Epoch, first.Type != "" && s.After.Seq > first.Seq:
		reason = pleg.OtherEpoch
	case first.Type != "" && s.Kept > 0 && first.Seq-s.After.Seq > s.Kept:
		reason, missed = pleg.HistoryTooShort, first.Seq-s.After.Seq-s.Kept
	}
	if first.Reason != reason || first.Missed != missed {
		return fmt.Errorf("after %s comes a Gap because of %q at %d with %d missed, want one because of %q with %d missed",
			s.After, first.Reason, first.Seq, first.Missed, reason, missed)
	}
	return nil
}

// ended: a subscriber that has not read everything when the pipeline ends gets one Gap for that, as
// the last event. That it counts all events is Complete.
func (s *Stream) ended() error {
	stopped := slices.IndexFunc(s.Events, func(ev pleg.Event) bool { return ev.Type == pleg.Gap && ev.Reason == pleg.Stopped })
	switch {
	case stopped < 0 && s.Unread:
		return errors.New("no Gap says that the pipeline ended")
	case stopped >= 0 && (!s.Unread || stopped != len(s.Events)-1 || s.Events[stopped].Missed == 0):
		return fmt.Errorf("event %d of %d is %+v", stopped, len(s.Events), s.Events[stopped])
	}
	return nil
}

func (s *Stream) state() error { return lines(s.State.Diff(s.Truth)) }

func (s *Stream) truth() error { return lines(s.Truth.Diff(s.Cached)) }

func (s *Stream) cacheFirst() error {
	if len(s.early) == 0 {
		return nil
	}
	return fmt.Errorf("%d events, such as %s", len(s.early), describe(s.early[0]))
}

// lines returns what differs as an error.
func lines(diff []string) error {
	var all []error
	for _, line := range diff {
		all = append(all, errors.New(line))
	}
	return errors.Join(all...)
}
