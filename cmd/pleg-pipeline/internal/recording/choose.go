package recording

import (
	"context"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// patience is how early a client may ask, in the time of the recording.
const patience = 500 * time.Millisecond

// choose returns the newest answer to a call, or nil if there is none. If the newest answer is used
// up, the client asks earlier than the recorded client. It gets the next answer, unless that
// belongs to a later list.
func (s *Server) choose(method string, request proto.Message) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := question(method, request)
	if kind, ok := kinds[q]; ok {
		return s.chooseList(kind)
	}
	if kind, isList := kinds[method]; isList && podOf(request) != "" {
		return s.podList(kind, podOf(request))
	}
	all := s.recording.answers[q]
	if len(all) == 0 {
		return nil
	}
	given := s.given[q]
	n := max(given, newestAt(all, s.now()))
	if n == given && n < len(all) && (n == 0 || all[n].at < s.limit()) {
		n++
	}
	s.given[q] = n
	return all[n-1]
}

// newestAt returns the number of calls that were made up to a time.
func newestAt(all []*call, by time.Duration) int {
	return sort.Search(len(all), func(i int) bool { return all[i].at > by })
}

// The methods below need the lock.

// chooseList returns a full list. The next round begins once a client asks again for a list.
func (s *Server) chooseList(kind int) *call {
	now := s.now()
	if s.asked[kind] {
		if rounds := s.recording.rounds; s.next < len(rounds) && (s.next == 0 || rounds[s.next].at <= now+patience) {
			s.shown = rounds[s.next]
			s.next++
		}
		// The clock has stood still until now.
		s.zero = s.zero.Add(s.elapsed() - now)
		s.asked = [2]bool{}
	}
	s.asked[kind] = true
	return s.changed(kind)
}

// changed returns the current full list with the changes of later lists of single pods. A client
// that follows CRI events makes such lists.
func (s *Server) changed(kind int) *call {
	list, singles := s.shown.lists[kind], s.recording.singles[kind]
	if list == nil || list.reply == nil {
		return list
	}
	newest := make(map[string]*call) // by pod
	for _, c := range singles[newestAt(singles, list.at):newestAt(singles, max(list.at, s.now()))] {
		newest[podOf(c.request)] = c
	}
	if len(newest) == 0 {
		return list
	}
	reply := filtered(list.reply, func(pod string) bool { return newest[pod] == nil })
	for _, pod := range slices.Sorted(maps.Keys(newest)) {
		proto.Merge(reply, newest[pod].reply)
	}
	return &call{at: list.at, took: list.took, reply: reply}
}

// podList returns the list of a single pod, even if the recorded client never asked for it.
func (s *Server) podList(kind int, uid string) *call {
	list := s.changed(kind)
	if list == nil || list.reply == nil {
		return list
	}
	return &call{at: list.at, took: list.took, reply: filtered(list.reply, func(pod string) bool { return pod == uid })}
}

func filtered(list proto.Message, keep func(pod string) bool) proto.Message {
	reply := empty(list)
	to, from := itemsOf(reply), itemsOf(list)
	for i := range from.Len() {
		if item := from.Get(i); keep(podOf(item.Message().Interface())) {
			to.Append(item)
		}
	}
	return reply
}

// elapsed is the time of a clock that does not stand still.
func (s *Server) elapsed() time.Duration { return time.Since(s.zero) }

// limit is the time of the next list. The clock stands still there until a client asks for it.
func (s *Server) limit() time.Duration {
	if s.next < len(s.recording.rounds) {
		return s.recording.rounds[s.next].at
	}
	return math.MaxInt64
}

func (s *Server) now() time.Duration { return min(s.elapsed(), s.limit()) }

// waitUntil waits for a time of the recording. It must not hold the lock.
func (s *Server) waitUntil(ctx context.Context, at time.Duration) error {
	for {
		s.mu.Lock()
		left := at - s.now()
		s.mu.Unlock()
		if left <= 0 {
			return nil
		}
		// The wait is longer if the clock stands still meanwhile.
		if err := backoff.Wait(ctx, max(time.Millisecond, left)); err != nil {
			return err
		}
	}
}
