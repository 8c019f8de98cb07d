package dispatcher

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

var walks = flag.Uint64("dispatcher.walks", 2000, "how many ways TestRandomSteps takes")

// TestRandomSteps takes the steps of the loop and of the readers one by one, in random order, with a log of one to
// three events. Whatever the order, each reader gets what package promises says, and never waits while there is
// something for it.
func TestRandomSteps(t *testing.T) {
	for seed := range *walks {
		w := newWalk(t, seed)
		for range 20 + w.rng.IntN(60) {
			w.step()
		}
		rests := w.rng.IntN(2) == 0
		if rests {
			w.rest()
		}
		w.end(rests)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// walk is a dispatcher without a loop, and all that happened.
type walk struct {
	*testing.T
	rng       *rand.Rand
	d         *Dispatcher
	now       time.Time
	published []pleg.Event
	truth     promises.Truth
	marked    time.Time // the last mark
	found     uint64    // the last event of the first list
	readers   []*walker
}

// walker is a reader of a walk.
type walker struct {
	sub    *Subscription
	stream promises.Stream
	fresh  bool // its events begin at the next turn of the loop
	missed uint64
	marked time.Time // the last Bookmark
}

func newWalk(t *testing.T, seed uint64) *walk {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
	d, err := New(Options{History: 1 + rng.IntN(3)})
	if err != nil {
		t.Fatal(err)
	}
	return &walk{T: t, rng: rng, d: d, now: time.Unix(1_700_000_000, 0), truth: make(promises.Truth)}
}

func (w *walk) step() {
	switch n := w.rng.IntN(18); {
	case n < 4:
		w.append()
	case n < 7:
		w.d.publish()
	case n == 7:
		w.mark()
	case n < 10 && w.d.last.newest == w.d.log.state.Load().newest: // between two cases of the loop
		w.answer()
	case n == 10 && len(w.readers) < 4:
		w.subscribe()
	case len(w.readers) > 0:
		i := w.rng.IntN(len(w.readers))
		if w.rng.IntN(40) == 0 {
			w.leave(i)
		} else {
			w.read(w.readers[i])
		}
	}
}

func (w *walk) tick() time.Time {
	w.now = w.now.Add(time.Second)
	return w.now
}

// append commits a few steps in the lives of a container and a sandbox of one of two pods.
func (w *walk) append() {
	w.begin()
	uid := []pleg.PodUID{"shop/a", "mail/b"}[w.rng.IntN(2)]
	o := stage.Outcome{UID: uid, Last: plegtest.Pod(uid, "")}
	if _, known := w.truth[uid]; !known {
		w.truth[uid] = promises.Pod{Namespace: o.Last.Namespace, Name: o.Last.Name, Containers: make(map[pleg.ContainerID]promises.Container)}
	} else if w.rng.IntN(4) == 0 {
		o.Last.Labels = nil // a list that does not show them
	}
	for range 1 + w.rng.IntN(4) {
		o.Events = append(o.Events, w.next(o.Last))
	}
	if len(w.truth[uid].Containers) == 0 {
		delete(w.truth, uid)
	} else {
		o.Pod = o.Last
	}
	w.d.append(o)
	for _, ev := range o.Events {
		ev.Seq, ev.Epoch = uint64(len(w.published)+1), w.d.epoch
		w.published = append(w.published, ev)
	}
}

func (w *walk) next(pod *pleg.Pod) pleg.Event {
	ev := pleg.Event{Type: pleg.PodSync, PodUID: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name, ObservedAt: w.tick()}
	containers := w.truth[pod.UID].Containers
	if len(containers) > 0 && w.rng.IntN(6) == 0 {
		return ev
	}
	ev.Sandbox = w.rng.IntN(2) == 0
	ev.ContainerID = pleg.ContainerID(fmt.Sprintf("%d-%d", len(w.published), w.now.Second())) // no life uses an id again
	for id, c := range containers {
		if c.Sandbox == ev.Sandbox {
			ev.ContainerID = id
		}
	}
	c, known := containers[ev.ContainerID]
	switch {
	case known && w.rng.IntN(4) == 0:
		ev.Type, ev.Image, ev.StartedAt = pleg.ContainerCorrected, fmt.Sprint("image-", len(w.published)), w.now
		if c.State == pleg.StateExited {
			ev.ExitCode, ev.Reason, ev.FinishedAt = new(c.ExitCode), "OOMKilled", w.now
		}
		return ev
	case !known:
		ev.Type, c = pleg.ContainerStarted, promises.Container{Sandbox: ev.Sandbox, State: pleg.StateRunning}
		ev.Replayed = w.marked.IsZero() && w.rng.IntN(2) == 0 // found by the first list
	case c.State == pleg.StateRunning:
		ev.Type, c.State, c.ExitCode = pleg.ContainerDied, pleg.StateExited, int32(w.rng.IntN(100))
	default:
		ev.Type = pleg.ContainerRemoved
		delete(containers, ev.ContainerID)
		return ev
	}
	containers[ev.ContainerID] = c
	return ev
}

func (w *walk) mark() {
	if w.marked.IsZero() {
		w.found = uint64(len(w.published))
	}
	w.marked = w.tick()
	w.d.mark(stage.Mark{Current: w.marked})
	w.d.mark(stage.Mark{}) // for callers only
}

func (w *walk) subscribe() {
	r, o := &walker{fresh: true}, pleg.SubscribeOptions{Bookmarks: w.rng.IntN(2) == 0, Replay: w.rng.IntN(2) == 0}
	switch w.rng.IntN(6) {
	case 0:
		o.Filter.Types = []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}[:1+w.rng.IntN(2)]
	case 1:
		o.Filter.OmitSandboxes = true
		r.stream.Wants = func(_ promises.Pod, c promises.Container) bool { return !c.Sandbox }
	case 2:
		o.Filter = []pleg.Filter{{Namespaces: []string{"shop"}}, {PodUIDs: []pleg.PodUID{"shop/a"}}, {Selector: "pod=a"}}[w.rng.IntN(3)]
		r.stream.Wants = func(p promises.Pod, _ promises.Container) bool { return p.Namespace == "shop" }
	}
	switch w.rng.IntN(4) {
	case 0:
		o.After = pleg.Position{Epoch: "another", Seq: 1}
	case 1: // perhaps of an event that is to come
		o.After = pleg.Position{Epoch: w.d.epoch, Seq: uint64(w.rng.IntN(len(w.published) + 2))}
	}
	var err error
	if r.sub, err = w.d.Subscribe(o); err != nil {
		w.Fatal(err)
	}
	r.stream.Replay, r.stream.Bookmarks, r.stream.After, r.stream.Types = o.Replay, o.Bookmarks, o.After, o.Filter.Types
	r.stream.Epoch, r.stream.Kept = w.d.epoch, uint64(len(w.d.log.ring))
	w.readers = append(w.readers, r)
}

// begin is a turn of the loop: a reader that asked for no earlier event knows the state up to here.
func (w *walk) begin() {
	for _, r := range w.readers {
		if r.fresh && !r.stream.Replay && r.stream.After == (pleg.Position{}) {
			r.stream.Truth = w.truth
			r.stream.Add(pleg.Event{Type: pleg.Synced, Seq: uint64(len(w.published)), Epoch: w.d.epoch})
			r.stream.Forget()
			r.stream.Truth = nil
		}
		r.fresh = false
	}
}

func (w *walk) answer() {
	w.begin()
	w.d.answer(w.d.callers.Take())
}

// read takes the next event, if it is there.
func (w *walk) read(r *walker) bool {
	select {
	case p := <-r.sub.positions:
		r.sub.place(p)
	default:
	}
	ev, ok := r.sub.take()
	if !ok {
		return false
	}
	switch r.stream.Add(ev); {
	case ev.PodUID != "" && !ev.Replayed && ev.Seq > w.d.log.state.Load().newest:
		w.Errorf("%d comes before it is published", ev.Seq)
	case ev.Type == pleg.Gap && ev.Reason != pleg.Stopped:
		r.missed += ev.Missed
	case ev.Type == pleg.Synced && (w.marked.IsZero() || ev.Seq < w.found):
		w.Errorf("Synced comes at %d, before the first list is settled at %d", ev.Seq, w.found)
	case ev.Type == pleg.Bookmark && !ev.ObservedAt.After(r.marked):
		w.Errorf("the bookmark of %v comes after that of %v", ev.ObservedAt, r.marked)
	case ev.Type == pleg.Bookmark:
		r.marked = ev.ObservedAt
	}
	return true
}

func (w *walk) readAll(r *walker) {
	for range 1000 {
		if !w.read(r) {
			return
		}
	}
	w.Fatal("there is no end of the events")
}

func (w *walk) leave(i int) {
	r := w.readers[i]
	w.readers = slices.Delete(w.readers, i, i+1)
	r.sub.Close()
	if _, err := r.sub.readOne(nil); !errors.Is(err, pleg.ErrClosed) {
		w.Errorf("after Close: %v", err)
	}
}

// rest lets every reader read all there is, and checks that nothing is owed.
func (w *walk) rest() {
	w.mark()
	for range 2 { // whom the log has left behind asks once more
		w.answer()
		for _, r := range w.readers {
			w.readAll(r)
		}
	}
	for i, r := range w.readers {
		if r.stream.Types == nil && (r.stream.Replay || r.stream.After.Epoch == "another") {
			r.stream.Truth = w.truth
		}
		w.check(i)
		if lag, missed := r.sub.Lag(), r.sub.counts.missed.Load(); lag != (pleg.Lag{}) || missed != r.missed {
			w.Errorf("reader %d: its lag is %+v, and %d are counted as missed of %d", i, lag, missed, r.missed)
		}
		if got := r.marked.Equal(w.marked); got != r.stream.Bookmarks {
			w.Errorf("reader %d: it has the last bookmark: %v", i, got)
		}
	}
}

// end ends the log. A reader that has not read everything then gets what is left of it.
func (w *walk) end(rested bool) {
	w.begin()
	w.d.publish()
	w.d.stop()
	for i, r := range w.readers {
		w.readAll(r)
		if !r.sub.reader.placed || !r.sub.reader.seen.stopped {
			w.Errorf("reader %d waits after the end", i)
		}
		r.stream.Unread = !rested
		w.check(i)
	}
}

func (w *walk) check(i int) {
	s := &w.readers[i].stream
	s.Published = func(string) []pleg.Event { return w.published }
	if err := s.Check(); err != nil {
		w.Errorf("reader %d, replay %v, after %v, types %v: %v\ngot %s\nof %s", i, s.Replay, s.After, s.Types, err, plegtest.Words(s.Events...), plegtest.Words(w.published...))
	}
}
