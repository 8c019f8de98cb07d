package promises_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

const (
	started, died, removed = pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved
	epoch                  = "e"
)

func at(seconds uint64) time.Time { return time.Unix(int64(seconds), 0) }

func event(seq uint64, typ pleg.EventType, pod pleg.PodUID, id pleg.ContainerID) pleg.Event {
	ev := pleg.Event{Seq: seq, Type: typ, PodUID: pod, ContainerID: id, Epoch: epoch, ObservedAt: at(seq)}
	if code := int32(3); typ == died {
		ev.ExitCode = &code
	}
	return ev
}

// published are the events of one pipeline, by number; published[0] is no event.
var published = []pleg.Event{
	{},
	event(1, started, "p", "c"), event(2, started, "p", "s"), event(3, died, "p", "c"),
	event(4, started, "q", "d"), event(5, removed, "p", "c"), event(6, died, "q", "d"),
}

// aMomentBefore is an event that a slewed clock dates 4 ns before the last event.
var aMomentBefore = with(published[3], func(ev *pleg.Event) { ev.ObservedAt = at(2).Add(-4) })

func overSocket(s *promises.Stream) { s.Wall = true }

func numbers(seqs ...int) (events []pleg.Event) {
	for _, seq := range seqs {
		events = append(events, published[seq])
	}
	return events
}

func replay(seqs ...int) []pleg.Event {
	events := numbers(seqs...)
	for i := range events {
		events[i].Replayed = true
	}
	return events
}

// ofNext returns a replayed event of the next epoch.
func ofNext(seq int) []pleg.Event {
	return with(replay(seq)[0], func(ev *pleg.Event) { ev.Epoch = "next" })
}

func mark(typ pleg.EventType, seq uint64) pleg.Event {
	return pleg.Event{Type: typ, Seq: seq, Epoch: epoch, ObservedAt: at(seq)}
}

func gap(reason string, seq, missed uint64) pleg.Event {
	ev := mark(pleg.Gap, seq)
	ev.Reason, ev.Missed = reason, missed
	return ev
}

func sync(seq uint64, pod pleg.PodUID) pleg.Event { return event(seq, pleg.PodSync, pod, "") }

func synced(seq uint64) pleg.Event { return mark(pleg.Synced, seq) }

var present = promises.Truth{
	"p": {Containers: map[pleg.ContainerID]promises.Container{"s": {State: pleg.StateRunning}}},
	"q": {Containers: map[pleg.ContainerID]promises.Container{"d": {State: pleg.StateExited, ExitCode: 3}}},
}

func look(uid pleg.PodUID) (*pleg.PodStatus, error) {
	status := &pleg.PodStatus{UID: uid}
	for id, c := range present[uid].Containers {
		status.Containers = append(status.Containers, &pleg.ContainerStatus{ID: id, State: c.State, ExitCode: c.ExitCode})
	}
	return status, nil
}

// knowing sets all known facts of a stream.
func knowing(change func(*promises.Stream)) func(*promises.Stream) {
	return func(s *promises.Stream) {
		s.Epoch, s.Truth, s.NoSync, s.All = epoch, present, true, true
		s.Published = func(string) []pleg.Event { return published[1:] }
		s.History = promises.NewHistory()
		p, q := s.Truth["p"], s.Truth["q"]
		ended := promises.Pod{Containers: map[pleg.ContainerID]promises.Container{"c": {State: pleg.StateExited}, "s": {State: pleg.StateRunning}}}
		s.History.Record(promises.Truth{"p": ended})
		s.History.Record(promises.Truth{"p": p, "q": q})
		for _, uid := range []pleg.PodUID{"p", "q"} {
			status, _ := look(uid)
			s.Cached = append(s.Cached, cache.Entry{UID: uid, Status: status})
		}
		change(s)
	}
}

// publishedOnly changes a stream of which only the published events are known.
func publishedOnly(change func(*promises.Stream)) func(*promises.Stream) {
	return knowing(func(s *promises.Stream) {
		s.Truth, s.History = nil, nil
		change(s)
	})
}

func nothing(*promises.Stream) {}

func replays(s *promises.Stream) { s.Replay = true }

func resumes(after uint64, of string) func(*promises.Stream) {
	return func(s *promises.Stream) { s.After = pleg.Position{Epoch: of, Seq: after} }
}

// corrects is publishedOnly, but the exit code of the last end was published later.
func corrects(replay bool) func(*promises.Stream) {
	return publishedOnly(func(s *promises.Stream) {
		without := with(published[6], func(ev *pleg.Event) { ev.ExitCode = nil })
		later := with(published[6], func(ev *pleg.Event) { ev.Seq, ev.Type = 7, pleg.ContainerCorrected })
		s.Replay, s.Published = replay, func(string) []pleg.Event { return slices.Concat(published[1:6], without, later) }
	})
}

type stream struct {
	set    func(*promises.Stream)
	events []pleg.Event
}

func (s stream) check() error {
	recorded := &promises.Stream{State: promises.State{Look: look}}
	s.set(recorded)
	for _, ev := range s.events {
		recorded.Add(ev)
	}
	return recorded.Check()
}

// The streams of tests/faults are left out: there every promise must hold.
var kept = map[string]stream{
	"over a socket": {overSocket, slices.Concat(numbers(1, 2), aMomentBefore)},
	"merged": {
		publishedOnly(func(s *promises.Stream) { s.Replay, s.Merged = true, true }),
		slices.Concat(replay(3, 2), numbers(4), []pleg.Event{synced(4)}, numbers(5, 6)),
	},
	"merged, and one is newer": {
		publishedOnly(func(s *promises.Stream) { s.Replay, s.Merged = true, true }),
		slices.Concat(replay(2), numbers(4), []pleg.Event{synced(4)}, numbers(6)),
	},
	"merged, and a pod is of the next epoch": {
		publishedOnly(func(s *promises.Stream) {
			s.Replay, s.Merged = true, true
			s.Published = func(epoch string) (all []pleg.Event) {
				for _, ev := range published[1:] {
					ev.Epoch = epoch
					all = append(all, ev)
				}
				return all
			}
		}),
		slices.Concat(ofNext(1), replay(4), []pleg.Event{synced(4)}, numbers(6)),
	},
	"a lost connection": {
		func(s *promises.Stream) { s.Replay, s.Breaks = true, []int{4} },
		slices.Concat(replay(1, 2), []pleg.Event{synced(2)}, numbers(3, 4), []pleg.Event{synced(4)}, numbers(5)),
	},
	"replayed as corrected": {corrects(true), slices.Concat(replay(2, 6), []pleg.Event{synced(7)})},
	"corrected after it":    {corrects(true), slices.Concat(replay(2), with(replay(6)[0], func(ev *pleg.Event) { ev.ExitCode = nil }), []pleg.Event{synced(7)})},
	"the runtime lies":      {func(s *promises.Stream) { s.Lies, s.History = true, promises.NewHistory() }, numbers(1, 2)},
	"unknown between":       {func(s *promises.Stream) { s.Repeats = true }, slices.Concat(numbers(1), []pleg.Event{event(7, started, "p", "c")})},
}

func TestKeptPromises(t *testing.T) {
	for name, tt := range kept {
		if err := tt.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stale is a cache without statuses, with observations of this time.
type stale time.Time

func (s stale) Get(uid pleg.PodUID) (*pleg.PodStatus, error) {
	return &pleg.PodStatus{UID: uid, ObservedAt: time.Time(s)}, nil
}

func (s stale) GetNewerThan(ctx context.Context, _ pleg.PodUID, t time.Time) (*pleg.PodStatus, error) {
	if time.Time(s).After(t) {
		return nil, nil
	}
	return nil, context.Cause(ctx)
}

func with(ev pleg.Event, change func(*pleg.Event)) []pleg.Event {
	change(&ev)
	return []pleg.Event{ev}
}

// Each stream breaks exactly one promise.
var broken = map[string]struct {
	promise error
	stream  stream
}{
	"another content":         {promises.ErrOrdered, stream{publishedOnly(nothing), slices.Concat(numbers(1, 2, 3), with(published[4], func(ev *pleg.Event) { ev.Reason = "x" }), numbers(5, 6))}},
	"corrected, not replayed": {promises.ErrOrdered, stream{corrects(false), numbers(1, 2, 3, 4, 5, 6)}},
	"observed earlier":        {promises.ErrOrdered, stream{nothing, slices.Concat(numbers(1, 2), with(published[3], func(ev *pleg.Event) { ev.ObservedAt = at(1) }))}},
	"observed before":         {promises.ErrOrdered, stream{nothing, slices.Concat(numbers(1, 2), aMomentBefore)}},
	"earlier over a socket":   {promises.ErrOrdered, stream{overSocket, slices.Concat(numbers(1, 2), with(published[3], func(ev *pleg.Event) { ev.ObservedAt = at(1) }))}},
	"the same number":         {promises.ErrUnique, stream{nothing, slices.Concat(numbers(1), with(published[4], func(ev *pleg.Event) { ev.Seq = 1 }))}},
	"a lower number":          {promises.ErrUnique, stream{nothing, numbers(4, 1)}},
	"a mark with a lower one": {promises.ErrUnique, stream{replays, slices.Concat(replay(1, 2), []pleg.Event{synced(1)})}},
	"another epoch":           {promises.ErrUnique, stream{nothing, slices.Concat(numbers(1), with(published[2], func(ev *pleg.Event) { ev.Epoch = "f" }))}},
	"replayed and again":      {promises.ErrUnique, stream{func(s *promises.Stream) { s.Replay, s.Merged, s.Repeats = true, true, true }, slices.Concat(replay(3, 4), []pleg.Event{synced(4)}, numbers(3))}},
	"older than the next":     {promises.ErrUnique, stream{func(s *promises.Stream) { s.Replay, s.Merged = true, true }, slices.Concat(ofNext(1), replay(4), []pleg.Event{synced(4)}, numbers(3))}},
	"an epoch that has ended": {promises.ErrUnique, stream{func(s *promises.Stream) { s.Replay, s.Merged = true, true }, slices.Concat(ofNext(1), []pleg.Event{gap(pleg.OtherEpoch, 5, 0)}, replay(4), ofNext(1), []pleg.Event{synced(5)})}},
	"an event lost":           {promises.ErrComplete, stream{publishedOnly(nothing), numbers(1, 3, 4, 5, 6)}},
	"the last event lost":     {promises.ErrComplete, stream{publishedOnly(nothing), numbers(1, 2, 3, 4, 5)}},
	"too few counted": {promises.ErrComplete, stream{
		publishedOnly(func(s *promises.Stream) { s.Kept = 2 }),
		slices.Concat(numbers(1), []pleg.Event{gap(pleg.HistoryTooShort, 5, 3)}, replay(2, 4), []pleg.Event{synced(5)}, numbers(6)),
	}},
	"missed, not in a Gap":    {promises.ErrComplete, stream{nothing, with(event(1, started, "p", "c"), func(ev *pleg.Event) { ev.Missed = 1 })}},
	"a sync for no reason":    {promises.ErrComplete, stream{func(s *promises.Stream) { s.NoSync = true }, []pleg.Event{sync(1, "p")}}},
	"the end counts too few":  {promises.ErrComplete, stream{publishedOnly(func(s *promises.Stream) { s.Unread, s.Kept = true, 2 }), slices.Concat(numbers(1, 2), []pleg.Event{gap(pleg.Stopped, 6, 3)})}},
	"a hole in a fleet":       {promises.ErrComplete, stream{func(s *promises.Stream) { s.Merged = true }, numbers(1, 2, 4)}},
	"a hole the replay lacks": {promises.ErrComplete, stream{publishedOnly(func(s *promises.Stream) { s.Replay, s.Merged = true, true }), slices.Concat(replay(2, 3), []pleg.Event{synced(2)}, numbers(4, 6))}},
	"a step lost":             {promises.ErrComplete, stream{knowing(func(s *promises.Stream) { s.Published, s.Truth = nil, nil }), numbers(2, 3, 4, 5, 6)}},
	"a removal lost":          {promises.ErrComplete, stream{knowing(func(s *promises.Stream) { s.Published, s.Truth = nil, nil }), numbers(1, 2, 3, 4, 6)}},
	"it never existed":        {promises.ErrComplete, stream{func(s *promises.Stream) { s.History = promises.NewHistory() }, numbers(1)}},
	"another exit code": {promises.ErrComplete, stream{
		func(s *promises.Stream) { s.Truth = present },
		slices.Concat(numbers(2, 4), with(published[6], func(ev *pleg.Event) { code := int32(4); ev.ExitCode = &code })),
	}},
	"not in the replay": {promises.ErrReplay, stream{publishedOnly(replays), slices.Concat(replay(3, 4), []pleg.Event{synced(4)}, numbers(5, 6))}},
	"an old state":      {promises.ErrReplay, stream{publishedOnly(replays), slices.Concat(replay(2, 3, 4), []pleg.Event{synced(5)}, numbers(6))}},
	"no Synced":         {promises.ErrSynced, stream{replays, replay(1, 2)}},
	"Synced too early":  {promises.ErrSynced, stream{func(s *promises.Stream) { replays(s); s.AtLeast = present }, slices.Concat(replay(2), []pleg.Event{synced(2)})}},
	"two Synced":        {promises.ErrSynced, stream{publishedOnly(replays), slices.Concat(replay(2, 3, 4), []pleg.Event{synced(4), synced(4)}, numbers(5, 6))}},
	"Synced unasked":    {promises.ErrSynced, stream{nothing, slices.Concat(numbers(1), []pleg.Event{synced(1)})}},
	"replayed later":    {promises.ErrSynced, stream{replays, slices.Concat(replay(1), []pleg.Event{synced(1)}, replay(2))}},
	"an older bookmark": {promises.ErrBookmarks, stream{
		func(s *promises.Stream) { s.Bookmarks = true },
		slices.Concat(numbers(1), []pleg.Event{mark(pleg.Bookmark, 2)}, with(mark(pleg.Bookmark, 2), func(ev *pleg.Event) { ev.ObservedAt = at(1) })),
	}},
	"the bookmark covers it": {promises.ErrBookmarks, stream{
		func(s *promises.Stream) { s.Bookmarks = true },
		slices.Concat(numbers(1), with(mark(pleg.Bookmark, 1), func(ev *pleg.Event) { ev.ObservedAt = at(2) }), numbers(2)),
	}},
	"another type":    {promises.ErrFilters, stream{func(s *promises.Stream) { s.Types = []pleg.EventType{died} }, numbers(1, 3)}},
	"a network event": {promises.ErrFilters, stream{nothing, []pleg.Event{event(1, pleg.NetworkFailed, "p", "s")}}},
	"another namespace": {promises.ErrFilters, stream{func(s *promises.Stream) {
		s.Wants = func(p promises.Pod, _ promises.Container) bool { return p.Namespace == "n" }
	}, numbers(1)}},
	"comes again":       {promises.ErrResume, stream{publishedOnly(resumes(3, epoch)), slices.Concat(numbers(3, 4, 5), []pleg.Event{synced(5)}, numbers(6))}},
	"the state unasked": {promises.ErrResume, stream{func(s *promises.Stream) { s.Epoch = epoch; resumes(3, epoch)(s) }, slices.Concat(replay(2), numbers(4), []pleg.Event{synced(4)})}},
	"the new state": {promises.ErrResume, stream{
		func(s *promises.Stream) { s.Epoch = epoch; replays(s); resumes(3, epoch)(s) },
		slices.Concat(replay(2, 4), []pleg.Event{synced(5)}, numbers(6)),
	}},
	"a Gap for no reason":    {promises.ErrGap, stream{publishedOnly(replays), slices.Concat([]pleg.Event{gap(pleg.HistoryTooShort, 4, 0)}, replay(2, 3, 4), []pleg.Event{synced(4)}, numbers(5, 6))}},
	"another count in a Gap": {promises.ErrGap, stream{publishedOnly(func(s *promises.Stream) { resumes(1, epoch)(s); s.Kept = 3 }), slices.Concat([]pleg.Event{gap(pleg.HistoryTooShort, 5, 5)}, replay(2, 4), []pleg.Event{synced(5)}, numbers(6))}},
	"no Gap":                 {promises.ErrGap, stream{func(s *promises.Stream) { s.Epoch = epoch; resumes(3, "old")(s) }, slices.Concat(numbers(4), []pleg.Event{synced(4)})}},
	"an end for no reason":   {promises.ErrEnd, stream{nothing, slices.Concat(numbers(1), []pleg.Event{gap(pleg.Stopped, 1, 0)})}},
	"a Gap within the log":   {promises.ErrGap, stream{publishedOnly(func(s *promises.Stream) { s.Kept = 4 }), slices.Concat(numbers(1), []pleg.Event{gap(pleg.HistoryTooShort, 5, 4)}, replay(2, 4), []pleg.Event{synced(5)}, numbers(6))}},
	"an end within the log":  {promises.ErrEnd, stream{func(s *promises.Stream) { s.Unread, s.Kept = true, 2 }, slices.Concat(numbers(1), []pleg.Event{gap(pleg.Stopped, 2, 1)})}},
	"an old status": {promises.ErrState, stream{func(s *promises.Stream) {
		s.Truth = present
		s.State.Look = func(uid pleg.PodUID) (*pleg.PodStatus, error) { return &pleg.PodStatus{UID: uid}, nil }
	}, slices.Concat(numbers(2, 4, 6), []pleg.Event{sync(7, "p")})}},
	"an older cache":  {promises.ErrCache, stream{func(s *promises.Stream) { s.Cache = stale(at(1)) }, numbers(1, 2)}},
	"an empty cache":  {promises.ErrCache, stream{func(s *promises.Stream) { s.Cache = stale{} }, numbers(1)}},
	"started twice":   {promises.ErrLife, stream{nothing, slices.Concat(numbers(1), []pleg.Event{event(2, started, "p", "c")})}},
	"died twice":      {promises.ErrLife, stream{nothing, slices.Concat(numbers(1, 3), []pleg.Event{event(4, died, "p", "c")})}},
	"removed twice":   {promises.ErrLife, stream{nothing, slices.Concat(numbers(1, 3, 5), []pleg.Event{event(6, removed, "p", "c")})}},
	"back to life":    {promises.ErrLife, stream{nothing, slices.Concat(numbers(1, 3), []pleg.Event{event(4, started, "p", "c")})}},
	"born again":      {promises.ErrLife, stream{nothing, slices.Concat(numbers(1, 3, 5), []pleg.Event{event(6, started, "p", "c")})}},
	"removed alive":   {promises.ErrLife, stream{nothing, numbers(1, 5)}},
	"a cache without": {promises.ErrTruth, stream{knowing(func(s *promises.Stream) { s.Cached = s.Cached[:1] }), numbers(1, 2, 3, 4, 5, 6)}},
}

func TestBrokenPromises(t *testing.T) {
	found := make(map[error]bool)
	for name, tt := range broken {
		err := tt.stream.check()
		found[tt.promise] = true
		for _, p := range promises.All {
			if is, want := errors.Is(err, p.Broken), errors.Is(p.Broken, tt.promise); is != want {
				t.Errorf("%s: breaks %s: %t, want %t; it breaks: %v", name, p.Name, is, want, err)
			}
		}
	}
	for _, p := range promises.All {
		if !found[p.Broken] {
			t.Errorf("no stream breaks %s", p.Name)
		}
	}
}
