package recording

import "time"

// round is a list of sandboxes and one of containers that were asked for at
// once, or one alone.
type round struct {
	at       time.Duration // when the later one was asked for
	end      time.Duration
	has      [kinds]bool
	distinct bool // it shows or fails in something else than the one before
}

// newRounds returns the rounds of the lists in steps, which are in the order of
// time.
func newRounds(steps []*step) []round {
	var rounds []round
	var last [kinds]*step
	for _, s := range steps {
		if !s.isList() {
			continue
		}
		if n := len(rounds); n == 0 || rounds[n-1].has[s.kind] || s.at > rounds[n-1].end {
			rounds = append(rounds, round{})
		}
		r := &rounds[len(rounds)-1]
		r.at, r.has[s.kind] = s.at, true
		r.end = max(r.end, s.at+s.took)
		r.distinct = r.distinct || !s.goesLike(last[s.kind])
		last[s.kind] = s
	}
	return rounds
}

// goesLike reports whether a list shows or fails in the same as the one before.
func (s *step) goesLike(last *step) bool {
	switch {
	case last == nil:
		return false
	case s.pending || last.pending:
		return false
	case s.err != nil && last.err != nil:
		return s.err.Error() == last.err.Error()
	}
	return s.same
}
