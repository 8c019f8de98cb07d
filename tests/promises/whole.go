package promises

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// resumed: no event comes that the position covers. With Replay, the state that has not changed
// since the position comes first. Complete checks that nothing is missing.
func (s *Stream) resumed() error {
	changed := make(map[container]bool)
	for _, ev := range s.Events {
		of := container{ev.PodUID, ev.ContainerID}
		switch {
		case ev.Type == pleg.Synced || ev.Type == pleg.Gap:
			return nil
		case ev.PodUID == "":
		case ev.Replayed && !s.found(ev) && (!s.Replay || ev.Seq > s.After.Seq || len(changed) > 0):
			return fmt.Errorf("%s is replayed after the position %d", describe(ev), s.After.Seq)
		case !ev.Replayed && ev.Seq <= s.After.Seq:
			return fmt.Errorf("%s comes again after the position %d", describe(ev), s.After.Seq)
		case !ev.Replayed:
			changed[of] = true
		}
	}
	return nil
}

// gaps: a Gap comes first if the position is not of this pipeline, and anywhere if the log has
// moved past the subscriber. It counts the events that are not delivered; [part.complete] checks
// that too.
func (s *Stream) gaps() error {
	for i, ev := range s.Events {
		switch {
		case ev.Type != pleg.Gap || ev.Reason == pleg.Stopped:
		case ev.Reason == pleg.OtherEpoch && i == 0 && ev.Missed == 0 && (s.After.Epoch != s.Epoch || s.After.Seq > ev.Seq) && s.After.Epoch != "":
		case ev.Reason == pleg.HistoryTooShort && s.Kept > 0 && ev.Missed > s.Kept && (i > 0 || s.After.Epoch == "" || ev.Missed <= ev.Seq-s.After.Seq):
		default:
			return fmt.Errorf("event %d, after %s, is a Gap because of %q at %d with %d missed", i, s.After, ev.Reason, ev.Seq, ev.Missed)
		}
	}
	if s.After.Epoch != "" && s.After.Epoch != s.Epoch && s.firstGap().Type == "" {
		return fmt.Errorf("no Gap comes after %s", s.After)
	}
	return nil
}

// ended: if the log had moved past the subscriber when the pipeline ended, it gets one Gap, as the
// last event.
func (s *Stream) ended() error {
	stopped := slices.IndexFunc(s.Events, func(ev pleg.Event) bool { return ev.Type == pleg.Gap && ev.Reason == pleg.Stopped })
	if stopped >= 0 && (!s.Unread || stopped != len(s.Events)-1 || s.Events[stopped].Missed <= s.Kept) {
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

// lines returns the differences as an error.
func lines(diff []string) error {
	var all []error
	for _, line := range diff {
		all = append(all, errors.New(line))
	}
	return errors.Join(all...)
}
